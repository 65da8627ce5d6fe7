//! From the name of a service to its addresses.

use std::collections::HashMap;

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result};

/// Turns the name in `service:NAME/path` into base URLs. Implement it for a service registry of your own.
#[async_trait]
pub trait ServiceResolver: Send + Sync {
    /// Returns the base URLs of the service, such as `http://10.0.0.7:8080`, at least one. They are asked in this order
    /// until one knows.
    ///
    /// Fails with kind `NotFound` if the service is unknown.
    async fn resolve(&self, service: &str) -> Result<Vec<String>>;
}

/// The services of a configuration.
///
/// ```
/// use landfall::check_back::{ServiceResolver, StaticServices};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> landfall::Result<()> {
/// let services = StaticServices::new([("orders".into(), vec!["http://10.0.0.7:8080".into()])]);
/// assert_eq!(services.resolve("orders").await?, ["http://10.0.0.7:8080"]);
/// assert!(services.resolve("other").await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct StaticServices(HashMap<String, Vec<String>>);

impl StaticServices {
    pub fn new(services: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        Self(services.into_iter().collect())
    }
}

#[async_trait]
impl ServiceResolver for StaticServices {
    async fn resolve(&self, service: &str) -> Result<Vec<String>> {
        match self.0.get(service) {
            Some(addresses) if !addresses.is_empty() => Ok(addresses.clone()),
            _ => Err(Error::new(ErrorKind::NotFound, format!("no service {service:?} is configured"))),
        }
    }
}
