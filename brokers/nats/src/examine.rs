//! The doctor's part.

use async_trait::async_trait;
use landfall_core::{Demands, Examine, Finding, Result};

use crate::broker::Nats;

#[async_trait]
impl Examine for Nats {
    async fn examine(&self, _: &Demands) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}
