//! What batches gain, on PostgreSQL: up to a hundred messages in one transaction, through a handler for one message
//! and through one for a slice. The peer runs one bare transaction per message, on 1, 16 and 32 connections.

use std::time::Duration;

use async_trait::async_trait;
use landfall::Failure;
use landfall::consume::{BatchContext, BatchHandler, Consumer, Options};
use landfall::postgres::{self, Postgres};

use crate::Result;
use crate::consumer::{BareTransactions, Effect, checked, drain, messages};
use crate::contest::{self, Contestant, Pace, Sample};
use crate::table::{Row, rate_rows};
use crate::workload::{group, topic};

const BATCH: usize = 100;
/// The largest number of connections that the peer uses.
const MAX_CONNECTIONS: usize = 32;

pub(crate) async fn measure(url: &str, total: Duration) -> Result<Vec<Row>> {
    let max_connections = MAX_CONNECTIONS as u32 + 4;
    let database = Postgres::connect(url, postgres::Options { max_connections, ..Default::default() }).await?;
    let mut rows = Vec::new();
    for (what, set_based) in [("each", false), ("set-based", true)] {
        let name = format!("consumer, PostgreSQL, batches of {BATCH}, {what}, one connection");
        let bare = |concurrency| BareTransactions { database: &database, concurrency, pace: Pace::guess(200.0) };
        let mut contestants: [Box<dyn Contestant>; 4] = [
            Box::new(Batched { database: &database, set_based, pace: Pace::guess(2000.0) }),
            Box::new(bare(1)),
            Box::new(bare(16)),
            Box::new(bare(MAX_CONNECTIONS)),
        ];
        let samples = contest::compare(&name, total, &mut contestants).await?;
        let peers = ["one bare transaction each, 1 connection", "the same, 16 connections", "the same, 32 connections"];
        rows.extend(rate_rows(&name, "msg/s", &peers, &samples));
    }
    Ok(rows)
}

struct Batched<'a> {
    database: &'a Postgres,
    set_based: bool,
    pace: Pace,
}

#[async_trait]
impl Contestant for Batched<'_> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let messages = messages(self.pace.operations(length))?;
        let (database, set_based) = (self.database.clone(), self.set_based);
        let options = Options { concurrency: 1, batch: BATCH, ..Options::default() };
        let (topic, group) = (topic()?, group()?);
        let (count, elapsed) = if set_based {
            drain(messages, |broker| Consumer::of_batches(database, broker, topic, group, Slice, options)).await?
        } else {
            drain(messages, |broker| Consumer::new(database, broker, topic, group, Effect, options)).await?
        };
        self.pace.learn(count, elapsed);
        checked(self.database, count, elapsed).await
    }
}

/// Inserts the effects of a whole slice with one statement.
struct Slice;

impl BatchHandler<Postgres> for Slice {
    async fn handle<'a>(&'a self, context: BatchContext<'a, Postgres>) -> Result<(), Failure> {
        let ids: Vec<_> = context.messages.iter().map(|message| message.id.as_uuid()).collect();
        let keys: Vec<_> = context.messages.iter().map(|m| m.key.as_ref().map(|key| key.as_str())).collect();
        sqlx::query("INSERT INTO effects (message_id, key) SELECT * FROM unnest($1::uuid[], $2::text[])")
            .bind(ids)
            .bind(keys)
            .execute(&mut *context.connection)
            .await?;
        Ok(())
    }
}
