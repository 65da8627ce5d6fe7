//! The cost of committing a message: one transaction with one message in it, repeatedly.

use std::time::Duration;

use async_trait::async_trait;
use landfall::produce::Outbox;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::contest::{self, Contestant, Sample, ensure_equal, repeat};
use crate::table::{Row, rate_rows};
use crate::workload::{PAYLOAD_BYTES, message};

pub(crate) async fn measure<D: Bare>(database: &D, clients: usize, total: Duration) -> Result<Vec<Row>> {
    let name = format!("outbox insert, {}, {clients} {}", D::NAME, if clients == 1 { "client" } else { "clients" });
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Landfall { database, clients }), Box::new(BareInsert { database, clients })];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "tx/s", &["BEGIN, INSERT, COMMIT"], &samples))
}

struct Landfall<'a, D> {
    database: &'a D,
    clients: usize,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let outbox = Outbox::new(self.database.clone());
        let insert = move || {
            let outbox = outbox.clone();
            async move {
                let message = message(0, PAYLOAD_BYTES)?;
                let transaction = outbox.begin().await?;
                Ok(outbox.commit_with(transaction, std::slice::from_ref(&message)).await?)
            }
        };
        let sample = repeat(self.clients, length, insert).await?;
        checked(self.database, sample, self.database.count(Table::Outbox).await?).await
    }
}

struct BareInsert<'a, D> {
    database: &'a D,
    clients: usize,
}

#[async_trait]
impl<D: Bare> Contestant for BareInsert<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let database = self.database.clone();
        let insert = move || {
            let database = database.clone();
            async move { database.insert(&message(0, PAYLOAD_BYTES)?).await }
        };
        let sample = repeat(self.clients, length, insert).await?;
        checked(self.database, sample, self.database.count_peers().await?).await
    }
}

/// Verifies one row per transaction; then empties the table for the next sample.
async fn checked<D: Bare>(database: &D, sample: Sample, rows: u64) -> Result<Sample> {
    if let Sample::Rate { operations, .. } = sample {
        ensure_equal("rows in the outbox", rows, operations)?;
    }
    database.clear().await?;
    Ok(sample)
}
