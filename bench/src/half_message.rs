//! The cost of a half message: prepare and commit at the coordinator, beside the outbox and the SQL it needs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall::half::{HalfCoordinator, StoredCoordinator};
use landfall::postgres::Postgres;
use landfall::produce::Outbox;
use landfall::{CheckBack, HalfMessage, HalfVerdict};
use sqlx::Executor;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::contest::{self, Contestant, Sample, ensure_equal, repeat};
use crate::table::{Row, rate_rows};
use crate::workload::{PAYLOAD_BYTES, message};

/// What a hand-written coordinator stores: the message and what to ask about, with an index on what is due.
const PEER: &str = "CREATE TABLE IF NOT EXISTS bare_half (
    id            uuid        PRIMARY KEY,
    state         text        NOT NULL,
    topic         text        NOT NULL,
    key           text,
    payload       bytea       NOT NULL,
    business_type text        NOT NULL,
    business_id   text        NOT NULL,
    check_back    text        NOT NULL,
    next_check_at timestamptz
);
CREATE INDEX IF NOT EXISTS bare_half_due ON bare_half (next_check_at) WHERE state = 'prepared'";

pub(crate) async fn measure(database: &Postgres, clients: usize, total: Duration) -> Result<Vec<Row>> {
    database.pool().execute(PEER).await?;
    let name =
        format!("half message, prepare and commit, {clients} {}", if clients == 1 { "client" } else { "clients" });
    let mut contestants: [Box<dyn Contestant>; 3] = [
        Box::new(Landfall { database, clients }),
        Box::new(Plain { database, clients }),
        Box::new(BareSql { database, clients }),
    ];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "messages/s", &["Landfall's outbox", "INSERT; UPDATE and INSERT"], &samples))
}

/// About 300 bytes, with an immunity period that no measurement reaches.
pub(crate) fn half() -> Result<HalfMessage> {
    Ok(HalfMessage {
        message: message(0, PAYLOAD_BYTES)?,
        business_type: "order".into(),
        business_id: "4711".into(),
        check_back: CheckBack { database: Some("shop".into()), ..CheckBack::default() },
        check_after: Duration::from_secs(3600),
    })
}

struct Landfall<'a> {
    database: &'a Postgres,
    clients: usize,
}

#[async_trait]
impl Contestant for Landfall<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let coordinator = StoredCoordinator::new(Arc::new(self.database.clone()));
        let send = move || {
            let coordinator = coordinator.clone();
            async move {
                let half = half()?;
                coordinator.prepare(&half).await?;
                coordinator.decide(half.message.id, HalfVerdict::Committed).await?;
                Ok(())
            }
        };
        let sample = repeat(self.clients, length, send).await?;
        checked(self.database, sample, self.database.count(Table::Outbox).await?).await
    }
}

/// One transaction with one message in it: what a half message costs more than.
struct Plain<'a> {
    database: &'a Postgres,
    clients: usize,
}

#[async_trait]
impl Contestant for Plain<'_> {
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

/// Two transactions in plain SQL, without audit, fingerprint and answers to repeats.
struct BareSql<'a> {
    database: &'a Postgres,
    clients: usize,
}

#[async_trait]
impl Contestant for BareSql<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let database = self.database.clone();
        let send = move || {
            let database = database.clone();
            async move { prepare_and_commit(&database).await }
        };
        let sample = repeat(self.clients, length, send).await?;
        checked(self.database, sample, self.database.count_peers().await?).await
    }
}

async fn prepare_and_commit(database: &Postgres) -> Result<()> {
    let HalfMessage { message, business_type, business_id, .. } = half()?;
    sqlx::query(
        "INSERT INTO bare_half (id, state, topic, key, payload, business_type, business_id, check_back, next_check_at)
         VALUES ($1, 'prepared', $2, $3, $4, $5, $6, '{\"database\":\"shop\"}', now() + interval '1 hour')",
    )
    .bind(message.id.as_uuid())
    .bind(message.topic.as_str())
    .bind(message.key.as_ref().map(|key| key.as_str()))
    .bind(&message.payload[..])
    .bind(business_type)
    .bind(business_id)
    .execute(database.pool())
    .await?;
    // One statement is one transaction.
    sqlx::query(
        "WITH decided AS (
             UPDATE bare_half SET state = 'committed', next_check_at = NULL WHERE id = $1 AND state = 'prepared'
             RETURNING id, topic, key, payload)
         INSERT INTO bare_outbox (message_id, topic, key, payload) SELECT id, topic, key, payload FROM decided",
    )
    .bind(message.id.as_uuid())
    .execute(database.pool())
    .await?;
    Ok(())
}

/// Verifies one enqueued message per operation; then empties the tables for the next sample.
async fn checked(database: &Postgres, sample: Sample, rows: u64) -> Result<Sample> {
    if let Sample::Rate { operations, .. } = sample {
        ensure_equal("rows in the outbox", rows, operations)?;
    }
    database.clear().await?;
    database.pool().execute("TRUNCATE landfall_half_message, landfall_audit, bare_half").await?;
    Ok(sample)
}
