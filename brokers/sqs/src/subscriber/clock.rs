//! Measures the service's clock from the `Date` header of its answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::BoxError;

/// Intercepts the answers of the calls to which it is attached.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerClock {
    skew: Arc<Mutex<Option<Duration>>>,
}

impl ServerClock {
    /// Returns the difference of the two clocks to a second, or `None` if no answer had a date.
    pub(crate) fn skew(&self) -> Option<Duration> {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for ServerClock {
    fn name(&self) -> &'static str {
        "ServerClock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date_header =
            context.response().headers().get("date").and_then(|date| httpdate::parse_http_date(date).ok());
        if let Some(date_header) = date_header {
            let now = SystemTime::now();
            let skew = now.duration_since(date_header).unwrap_or_else(|ahead| ahead.duration());
            *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = Some(skew);
        }
        Ok(())
    }
}
