//! NATS JetStream.

use super::Contender;
use crate::Result;

pub(super) async fn start() -> Result<Option<Box<dyn Contender>>> {
    Ok(None)
}
