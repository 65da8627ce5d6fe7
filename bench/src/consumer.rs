//! Consumer throughput: one transaction per message, with the inbox row and one row of effect in it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::consume::{Consumer, Context, Handler, Options, Work};
use landfall::{Broker, Failure, Inbox, Message};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::bare::{Bare, Table};
use crate::contest::{self, Contestant, Pace, Sample, ensure_equal};
use crate::preloaded_broker::PreloadedBroker;
use crate::table::{Row, rate_rows};
use crate::workload::{PAYLOAD_BYTES, group, message, topic};

/// A consumer that needs longer than this for a sample is stuck; the run fails.
const STUCK_AFTER: Duration = Duration::from_secs(120);

pub(crate) async fn measure<D: Bare>(database: &D, concurrency: usize, total: Duration) -> Result<Vec<Row>> {
    let name = format!("consumer, {}, {concurrency} at a time", D::NAME);
    let mut contestants: [Box<dyn Contestant>; 2] = [
        Box::new(Landfall { database, concurrency, pace: Pace::guess(200.0) }),
        Box::new(BareTransactions { database, concurrency, pace: Pace::guess(200.0) }),
    ];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    Ok(rate_rows(&name, "msg/s", &["one bare transaction each"], &samples))
}

/// The handler: inserts one row of effect in the inbox transaction.
pub(crate) struct Effect;

impl<D: Bare> Handler<D> for Effect {
    async fn handle<'a>(&'a self, context: Context<'a, D>) -> Result<(), Failure> {
        Ok(D::apply(context.connection, context.message).await?)
    }
}

struct Landfall<'a, D> {
    database: &'a D,
    concurrency: usize,
    pace: Pace,
}

#[async_trait]
impl<D: Bare> Contestant for Landfall<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let messages = messages(self.pace.operations(length))?;
        let (database, concurrency) = (self.database.clone(), self.concurrency);
        let options = Options { concurrency, ..Options::default() };
        let (topic, group) = (topic()?, group()?);
        let consumer = |broker| Consumer::new(database, broker, topic, group, Effect, options);
        let (count, elapsed) = drain(messages, consumer).await?;
        self.pace.learn(count, elapsed);
        checked(self.database, count, elapsed).await
    }
}

/// Runs a consumer over `messages`. Returns their number, and the time until the last one was acknowledged.
pub(crate) async fn drain<D: Inbox, W: Work<D>>(
    messages: Vec<Message>,
    consumer: impl FnOnce(Arc<dyn Broker>) -> Consumer<D, W>,
) -> Result<(u64, Duration)> {
    let count = messages.len() as u64;
    let (acknowledged, mut acknowledgements) = mpsc::unbounded_channel();
    let consumer = consumer(Arc::new(PreloadedBroker::new(messages, acknowledged)));
    let stop = CancellationToken::new();

    let started = Instant::now();
    let consumer = tokio::spawn(consumer.run(stop.clone()));
    let all = async {
        for _ in 0..count {
            acknowledgements.recv().await;
        }
    };
    let finished = tokio::time::timeout(STUCK_AFTER, all).await;
    let elapsed = started.elapsed();

    stop.cancel();
    consumer.await??;
    finished.map_err(|_| format!("the consumer did not finish {count} messages in {STUCK_AFTER:?}"))?;
    Ok((count, elapsed))
}

pub(crate) struct BareTransactions<'a, D> {
    pub(crate) database: &'a D,
    pub(crate) concurrency: usize,
    pub(crate) pace: Pace,
}

#[async_trait]
impl<D: Bare> Contestant for BareTransactions<'_, D> {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let messages = messages(self.pace.operations(length))?;
        let count = messages.len() as u64;
        let messages = Arc::new(Mutex::new(messages.into_iter()));
        let next = move || messages.lock().map(|mut messages| messages.next()).ok().flatten();

        let started = Instant::now();
        let mut tasks = JoinSet::<Result<()>>::new();
        for _ in 0..self.concurrency {
            let (database, next) = (self.database.clone(), next.clone());
            tasks.spawn(async move {
                while let Some(message) = next() {
                    database.handle(&message).await?;
                }
                Ok(())
            });
        }
        while let Some(finished) = tasks.join_next().await {
            finished??;
        }
        let elapsed = started.elapsed();
        self.pace.learn(count, elapsed);
        checked(self.database, count, elapsed).await
    }
}

pub(crate) fn messages(count: u64) -> Result<Vec<Message>> {
    (0..count).map(|number| message(number, PAYLOAD_BYTES)).collect()
}

/// Verifies that every message took effect exactly once; then empties the tables for the next sample.
pub(crate) async fn checked<D: Bare>(database: &D, count: u64, elapsed: Duration) -> Result<Sample> {
    ensure_equal("rows in the inbox", database.count(Table::Inbox).await?, count)?;
    ensure_equal("effects", database.count(Table::Effects).await?, count)?;
    database.clear().await?;
    Ok(Sample::Rate { operations: count, elapsed })
}
