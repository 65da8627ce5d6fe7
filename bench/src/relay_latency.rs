//! Latency from the call that commits a message until the relay has handed it to the broker, at a rate without
//! queueing. The peer is the commit alone; the difference is what the relay adds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::produce::Outbox;
use landfall::relay::{Options, Relay};
use landfall::{Message, MessageId, Outcome, Position, Publisher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::Bare;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::latency::{messages_in, send, ticks};
use crate::table::{Row, latency_rows};
use crate::workload::{PAYLOAD_BYTES, message};

const PER_SECOND: u32 = 20;
/// A shorter run has too few messages for a 99th percentile.
const MIN_TOTAL: Duration = Duration::from_secs(21);
const STUCK_AFTER: Duration = Duration::from_secs(60);

pub(crate) async fn measure<D: Bare>(database: &D, total: Duration) -> Result<Vec<Row>> {
    let name = format!("commit → broker, {}, {PER_SECOND} msg/s", D::NAME);
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Landfall { database }), Box::new(CommitAlone { database })];
    let samples = contest::compare(&name, total.max(MIN_TOTAL), &mut contestants).await?;
    Ok(latency_rows(&name, &["the commit alone"], &samples))
}

struct Landfall<'a, D> {
    database: &'a D,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    /// The first message waits until the relay has its leases; it is not measured.
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let (arrived, mut arrivals) = mpsc::unbounded_channel();
        let (database, stop) = (Arc::new(self.database.clone()), CancellationToken::new());
        let relay = Relay::new(database.clone(), database, Arc::new(Arrivals(arrived)), Options::default());
        let relay = tokio::spawn(relay.run(stop.clone()));
        let mut arrival = async || -> Result<(MessageId, Instant)> {
            let next = tokio::time::timeout(STUCK_AFTER, arrivals.recv()).await;
            Ok(next?.ok_or("the relay ended before all messages had arrived")?)
        };

        let outbox = Outbox::new(self.database.clone());
        send(&outbox, 0).await?;
        arrival().await?;
        let mut ticks = ticks(PER_SECOND);
        let mut sent = HashMap::new();
        for number in 1..=messages_in(length, PER_SECOND) {
            ticks.tick().await;
            let started = Instant::now();
            sent.insert(send(&outbox, number).await?, started);
        }
        let mut latencies = Vec::with_capacity(sent.len());
        while !sent.is_empty() {
            let (id, at) = arrival().await?;
            let started = sent.remove(&id).ok_or_else(|| format!("message {id} arrived twice or was never sent"))?;
            latencies.push(at - started);
        }
        stop.cancel();
        relay.await??;
        self.database.clear().await?;
        Ok(Sample::Latencies(latencies))
    }
}

/// A broker that accepts everything and reports when.
struct Arrivals(mpsc::UnboundedSender<(MessageId, Instant)>);

#[async_trait]
impl Publisher for Arrivals {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let at = Instant::now();
        for message in batch {
            // The receiver is closed once the sample is complete.
            let _ = self.0.send((message.id, at));
        }
        batch.iter().map(|_| Outcome::Accepted(Position { partition: 0, offset: 0 })).collect()
    }
}

struct CommitAlone<'a, D> {
    database: &'a D,
}

#[async_trait]
impl<D: Bare> Contestant for CommitAlone<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut ticks = ticks(PER_SECOND);
        let mut latencies = Vec::new();
        for number in 0..messages_in(length, PER_SECOND) {
            let message = message(number, PAYLOAD_BYTES)?;
            ticks.tick().await;
            let started = Instant::now();
            self.database.insert(&message).await?;
            latencies.push(started.elapsed());
        }
        ensure_equal("rows inserted", self.database.count_peers().await?, latencies.len() as u64)?;
        self.database.clear().await?;
        Ok(Sample::Latencies(latencies))
    }
}
