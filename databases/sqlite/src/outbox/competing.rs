//! Refuses relays without order, which have no advantage on SQLite.

use async_trait::async_trait;
use landfall_core::adapter::Claim;
use landfall_core::{CompetingQueue, Error, ErrorKind, Result};

use crate::Sqlite;

#[async_trait]
impl CompetingQueue for Sqlite {
    async fn claim(&self, _: usize) -> Result<Box<dyn Claim>> {
        let sentence = "SQLite has one writer at a time and no row locks, so relays cannot compete for rows; \
                        run the relay with order = \"key\", which costs nothing here";
        Err(Error::new(ErrorKind::Unsupported, sentence))
    }
}
