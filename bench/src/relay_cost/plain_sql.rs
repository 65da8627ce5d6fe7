//! Latency from a plain SQL commit until the relay has handed the message to the broker. The writer wakes no relay.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::postgres::Postgres;

use super::side::{PEER_NAMES, Running, Side};
use crate::Result;
use crate::contest::{self, Contestant, Sample};
use crate::latency::{messages_in, ticks};
use crate::table::{Row, latency_rows};

/// At its start a relay truncates what an earlier process left, which writers may notice. Those are not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// A shorter run has too few messages for a 99th percentile.
const MIN_TOTAL: Duration = Duration::from_secs(21);

pub(super) async fn measure(database: &Postgres, per_second: u32, total: Duration) -> Result<Vec<Row>> {
    let name = format!("plain SQL → broker, PostgreSQL, {per_second} msg/s");
    let sides = [Side::Landfall, Side::Poller];
    let mut contestants = sides.map(|side| Box::new(PlainSql { side, database, per_second }) as Box<dyn Contestant>);
    let samples = contest::compare(&name, total.max(MIN_TOTAL), &mut contestants).await?;
    Ok(latency_rows(&name, &PEER_NAMES[..1], &samples))
}

struct PlainSql<'a> {
    side: Side,
    database: &'a Postgres,
    per_second: u32,
}

#[async_trait]
impl Contestant for PlainSql<'_> {
    /// The time includes the commit itself.
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut running = Running::start(self.side, self.database).await?;
        let (mut ticks, mut sent) = (ticks(self.per_second), HashMap::new());
        let warm_up = messages_in(WARM_UP, self.per_second);
        for number in 0..warm_up {
            ticks.tick().await;
            self.side.insert(self.database, number).await?;
        }
        running.drained(warm_up).await?;
        for number in 0..messages_in(length, self.per_second) {
            ticks.tick().await;
            let started = Instant::now();
            sent.insert(self.side.insert(self.database, number).await?, started);
        }
        let mut latencies = Vec::with_capacity(sent.len());
        while !sent.is_empty() {
            let (id, at) = running.next().await?;
            let started = sent.remove(&id).ok_or_else(|| format!("message {id} arrived twice or was never sent"))?;
            latencies.push(at - started);
        }
        running.end(self.database).await?;
        Ok(Sample::Latencies(latencies))
    }
}
