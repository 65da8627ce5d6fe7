//! What time it is for the service: every answer says so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::BoxError;

/// Listens to the answers of the calls that it is given to.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerClock {
    skew: Arc<Mutex<Option<Duration>>>,
}

impl ServerClock {
    /// How far the two clocks are apart, to a second; `None` if no answer has told.
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
        let told = context.response().headers().get("date").and_then(|date| httpdate::parse_http_date(date).ok());
        if let Some(told) = told {
            let now = SystemTime::now();
            let apart = now.duration_since(told).unwrap_or_else(|ahead| ahead.duration());
            *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = Some(apart);
        }
        Ok(())
    }
}
