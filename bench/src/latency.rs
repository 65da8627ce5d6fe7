//! Latency from the call that commits a message until its effect has committed, through outbox, relay, embedded log and
//! consumer. The rate is low, so that the figure contains no queueing.
//!
//! The peer does the same three durable writes one after the other in one task, with nothing to wake up. They are a
//! transaction with the outbox row, a synced append, and a transaction with the inbox row and the effect.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::log::{self, Log};
use landfall::produce::Outbox;
use landfall::{Broker, MessageId, consume, relay};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::consumer::Effect;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::observed::Observed;
use crate::table::{Row, latency_rows};
use crate::workload::{PAYLOAD_BYTES, group, message, topic};

pub(crate) const PER_SECOND: u32 = 100;
/// An effect that has not happened after this long is treated as lost; the run fails.
const STUCK_AFTER: Duration = Duration::from_secs(60);

pub(crate) async fn measure<D: Bare>(database: &D, total: Duration) -> Result<Vec<Row>> {
    let name = format!("commit → effect, {}, {PER_SECOND} msg/s", D::NAME);
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Landfall { database }), Box::new(StepByStep { database })];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(latency_rows(&name, &["the same three syncs in a row"], &samples))
}

/// The whole path over the embedded log.
pub(crate) struct Landfall<'a, D> {
    pub(crate) database: &'a D,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let folder = tempfile::tempdir()?;
        let broker = Arc::new(Log::open(folder.path(), log::Options::default())?);
        commit_to_effect(self.database, broker, length).await
    }
}

/// Measures from commit to effect over `broker` for `length`, and checks that every message took effect.
pub(crate) async fn commit_to_effect<D: Bare>(
    database: &D,
    broker: Arc<dyn Broker>,
    length: Duration,
) -> Result<Sample> {
    let (acknowledged, acknowledgements) = mpsc::unbounded_channel();
    let relay = relay::Relay::builder(database.clone(), broker.publisher()).build()?;
    let broker = Arc::new(Observed::new(broker, acknowledged));
    let options = consume::Options::default();
    let consumer = consume::Consumer::builder(database.clone(), broker)
        .topic(topic()?)
        .group(group()?)
        .handler(Effect)
        .options(options)
        .build()?;
    let stop = CancellationToken::new();
    let relay = tokio::spawn(relay.run(stop.clone()));
    let consumer = tokio::spawn(consumer.run(stop.clone()));

    let latencies = send_and_watch(database, length, acknowledgements).await;
    stop.cancel();
    relay.await??;
    consumer.await??;
    checked(database, latencies?).await
}

/// Sends at a fixed rate and pairs every message with its acknowledgement, which the consumer sends right after the
/// commit of the effect. The first message opens files and acquires leases; it is not measured.
async fn send_and_watch<D: Bare>(
    database: &D,
    length: Duration,
    mut acknowledgements: mpsc::UnboundedReceiver<(MessageId, Instant)>,
) -> Result<Vec<Duration>> {
    let mut effect = async || -> Result<(MessageId, Instant)> {
        let next = tokio::time::timeout(STUCK_AFTER, acknowledgements.recv()).await;
        Ok(next?.ok_or("the consumer ended before the effects of all messages")?)
    };
    let outbox = Outbox::new(database.clone());
    send(&outbox, 0).await?;
    effect().await?;

    let mut ticks = ticks(PER_SECOND);
    let mut sent = HashMap::new();
    for number in 1..=messages_in(length, PER_SECOND) {
        ticks.tick().await;
        let started = Instant::now();
        sent.insert(send(&outbox, number).await?, started);
    }
    let mut latencies = Vec::with_capacity(sent.len());
    while !sent.is_empty() {
        let (id, acknowledged) = effect().await?;
        let started = sent.remove(&id).ok_or_else(|| format!("message {id} took effect twice or was never sent"))?;
        latencies.push(acknowledged - started);
    }
    Ok(latencies)
}

pub(crate) async fn send<D: Bare>(outbox: &Outbox<D>, number: u64) -> Result<MessageId> {
    let message = message(number, PAYLOAD_BYTES)?;
    let id = message.id;
    outbox.execute::<_, landfall::Error, _>(async move |_| Ok(((), vec![message]))).await?;
    Ok(id)
}

struct StepByStep<'a, D> {
    database: &'a D,
}

#[async_trait]
impl<D: Bare> Contestant for StepByStep<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut file = tempfile::tempfile()?;
        let mut latencies = Vec::new();
        let mut ticks = ticks(PER_SECOND);
        for number in 0..=messages_in(length, PER_SECOND) {
            let message = message(number, PAYLOAD_BYTES)?;
            ticks.tick().await;
            let started = Instant::now();
            self.database.insert(&message).await?;
            file.write_all(&message.payload)?;
            file.sync_data()?;
            self.database.handle(&message).await?;
            latencies.push(started.elapsed());
        }
        latencies.remove(0);
        checked(self.database, latencies).await
    }
}

pub(crate) fn ticks(per_second: u32) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

pub(crate) fn messages_in(length: Duration, per_second: u32) -> u64 {
    (length.as_secs_f64() * f64::from(per_second)).ceil() as u64
}

/// Verifies one effect per message, the unmeasured first one included; then empties the tables for the next sample.
async fn checked<D: Bare>(database: &D, latencies: Vec<Duration>) -> Result<Sample> {
    ensure_equal("effects", database.count(Table::Effects).await?, latencies.len() as u64 + 1)?;
    database.clear().await?;
    Ok(Sample::Latencies(latencies))
}
