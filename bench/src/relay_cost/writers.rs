//! How much writing is left to the writers while a relay runs: eight clients, one message a transaction.

use std::time::Duration;

use async_trait::async_trait;
use landfall::postgres::Postgres;

use super::side::{PEER_NAMES, Running, Side};
use crate::Result;
use crate::contest::{self, Contestant, Sample, repeat};
use crate::table::{Row, rate_rows};

const CLIENTS: usize = 8;

pub(super) async fn measure(database: &Postgres, total: Duration) -> Result<Vec<Row>> {
    let name = format!("writers beside a relay, PostgreSQL, {CLIENTS} clients");
    let mut contestants = Side::ALL.map(|side| Box::new(Writers { side, database }) as Box<dyn Contestant>);
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "tx/s", &PEER_NAMES, &samples))
}

struct Writers<'a> {
    side: Side,
    database: &'a Postgres,
}

#[async_trait]
impl Contestant for Writers<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut running = Running::start(self.side, self.database).await?;
        let (side, database) = (self.side, self.database.clone());
        let insert = move || {
            let database = database.clone();
            async move { side.insert(&database, 1).await.map(drop) }
        };
        let sample = repeat(CLIENTS, length, insert).await?;
        if let Sample::Rate { operations, .. } = sample {
            running.drained(operations).await?;
        }
        running.end(self.database).await?;
        Ok(sample)
    }
}
