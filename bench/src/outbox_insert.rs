//! What it costs to commit a message: one transaction with one message in it, over and over.

use std::time::Duration;

use async_trait::async_trait;
use landfall::produce::Outbox;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::contest::{self, Contestant, Turn, ensure_equal, repeat};
use crate::table::{Row, rate_rows};
use crate::workload::{PAYLOAD_BYTES, message};

pub(crate) async fn measure<D: Bare>(database: &D, clients: usize, total: Duration) -> Result<Vec<Row>> {
    let name = format!("outbox insert, {}, {clients} {}", D::NAME, if clients == 1 { "client" } else { "clients" });
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Landfall { database, clients }), Box::new(BareInsert { database, clients })];
    let turns = contest::hold(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "tx/s", &["BEGIN, INSERT, COMMIT"], &turns))
}

struct Landfall<'a, D> {
    database: &'a D,
    clients: usize,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let outbox = Outbox::new(self.database.clone());
        let insert = move || {
            let outbox = outbox.clone();
            async move {
                let message = message(0, PAYLOAD_BYTES)?;
                let transaction = outbox.begin().await?;
                Ok(outbox.commit_with(transaction, std::slice::from_ref(&message)).await?)
            }
        };
        let turn = repeat(self.clients, length, insert).await?;
        checked(self.database, turn, self.database.count(Table::Outbox).await?).await
    }
}

struct BareInsert<'a, D> {
    database: &'a D,
    clients: usize,
}

#[async_trait]
impl<D: Bare> Contestant for BareInsert<'_, D> {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let database = self.database.clone();
        let insert = move || {
            let database = database.clone();
            async move { database.insert(&message(0, PAYLOAD_BYTES)?).await }
        };
        let turn = repeat(self.clients, length, insert).await?;
        checked(self.database, turn, self.database.count_peers().await?).await
    }
}

/// As many rows as transactions; then an empty table for whoever is next.
async fn checked<D: Bare>(database: &D, turn: Turn, rows: u64) -> Result<Turn> {
    if let Turn::Rate { operations, .. } = turn {
        ensure_equal("rows in the outbox", rows, operations)?;
    }
    database.clear().await?;
    Ok(turn)
}
