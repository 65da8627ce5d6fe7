//! The outbox without order, which SQLite has no use for.

use async_trait::async_trait;
use landfall_core::{Claim, CompetingQueue, Error, ErrorKind, Result};

use crate::Sqlite;

#[async_trait]
impl CompetingQueue for Sqlite {
    async fn claim(&self, _: usize) -> Result<Box<dyn Claim>> {
        let sentence = "SQLite lets one writer in at a time and locks no single rows, so relays cannot compete for them; \
                        run the relay with order = \"key\", which costs nothing here";
        Err(Error::new(ErrorKind::Unsupported, sentence))
    }
}
