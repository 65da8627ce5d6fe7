//! Consume: every message takes effect once, per key in order (C1, O1, O2).
//!
//! ```text
//!   delivery ─▶ lane of its key ─▶ one transaction { inbox row, handler's writes } ─▶ commit ─▶ acknowledge
//!                    │                        │ fails
//!                    │                        ├─▶ again after a while, its key waiting
//!                    │                        └─▶ after the maximum: dead letter, its key queues behind it
//!   redriven dead letters ─▶ the same handler, in order, until the key flows again
//! ```
//!
//! A crash anywhere before the commit leaves nothing behind and the message comes again; after it, the message comes
//! again and its inbox row turns it away. Messages of one key are handled one after the other, different keys at the
//! same time.

mod attempt;
mod handler;
mod lanes;
mod redrive;

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Backoff, Broker, Delivery, Error, ErrorKind, GroupName, Inbox, Result, Subscriber, TopicName};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use attempt::{Attempts, pause_unless_stopped};
use lanes::Lanes;

pub use handler::{Context, Handler, handler_fn};

/// Applies a topic's messages to one database, as one member of a group.
pub struct Consumer<D, H> {
    broker: Arc<dyn Broker>,
    attempts: Arc<Attempts<D, H>>,
    options: Options,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Handlers that run at the same time; never two of one key.
    pub concurrency: usize,
    /// Deliveries taken from the broker and not yet finished.
    pub max_in_flight: usize,
    /// For a message whose handler failed: delays between its tries, and how many tries before it is parked.
    pub backoff: Backoff,
    /// How often to look for dead letters that a person redrove.
    pub redrive_poll: Duration,
    /// Redriven dead letters that are handled at the same time, each of another key.
    pub redrive_concurrency: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 16,
            max_in_flight: 256,
            backoff: Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(10), max_attempts: 8 },
            redrive_poll: Duration::from_millis(500),
            redrive_concurrency: 4,
        }
    }
}

impl<D: Inbox, H: Handler<D>> Consumer<D, H> {
    pub fn new(
        database: D,
        broker: Arc<dyn Broker>,
        topic: TopicName,
        group: GroupName,
        handler: H,
        options: Options,
    ) -> Self {
        let running = Semaphore::new(options.concurrency.max(1));
        let attempts = Attempts { database, topic, group, handler, backoff: options.backoff, running };
        Self { broker, attempts: Arc::new(attempts), options }
    }

    /// Works until `stop` is cancelled or the broker is closed. Handlers that are running are finished and their
    /// messages acknowledged; what was not begun is delivered again to the next member.
    ///
    /// A broker that cannot be reached is waited for. `Err` if it fails in a way that no waiting mends, such as
    /// damaged data.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let stop = stop.child_token();
        let redrive = tokio::spawn(redrive::drain(self.attempts.clone(), self.options.clone(), stop.clone()));
        let result = loop {
            match self.consume(&stop).await {
                Err(error) if error.is_temporary() => {
                    tracing::warn!(%error, "the broker cannot be read; waiting");
                    pause_unless_stopped(self.options.backoff.first, &stop).await;
                }
                result => break result,
            }
        };
        stop.cancel();
        // A panic in it has been logged by the runtime; the broker's answer is the one that counts.
        let _ = redrive.await;
        result
    }

    /// One membership, from joining the group to leaving it.
    async fn consume(&self, stop: &CancellationToken) -> Result<()> {
        if stop.is_cancelled() {
            return Ok(());
        }
        let mut subscriber = self.broker.subscribe(&self.attempts.topic, &self.attempts.group).await?;
        // A broker failure ends the handlers' waiting too, without ending the caller's other work.
        let stop = stop.child_token();
        let mut tasks = JoinSet::new();
        let result = self.dispatch(&mut *subscriber, &mut tasks, &stop).await;
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        result.and(subscriber.close().await)
    }

    async fn dispatch(
        &self,
        subscriber: &mut dyn Subscriber,
        tasks: &mut JoinSet<lanes::Lane>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let mut lanes = Lanes::default();
        loop {
            let room = lanes.in_flight() < self.options.max_in_flight.max(1);
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(finished) = tasks.join_next() => {
                    // A handler's panic is caught inside the task, so this can only be a bug of ours: end the
                    // membership, and everything unfinished comes again.
                    let lane = finished.map_err(lost_task)?;
                    if let Some((lane, delivery)) = lanes.finished(lane) {
                        self.begin(tasks, lane, delivery, stop);
                    }
                }
                next = subscriber.next(), if room => {
                    let Some(delivery) = next? else { return Ok(()) };
                    if let Some((lane, delivery)) = lanes.arrived(delivery) {
                        self.begin(tasks, lane, delivery, stop);
                    }
                }
            }
        }
    }

    fn begin(&self, tasks: &mut JoinSet<lanes::Lane>, lane: lanes::Lane, delivery: Delivery, stop: &CancellationToken) {
        let (attempts, stop) = (self.attempts.clone(), stop.clone());
        tasks.spawn(async move {
            attempts.settle(delivery, &stop).await;
            lane
        });
    }
}

impl<D, H> std::fmt::Debug for Consumer<D, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("options", &self.options).finish_non_exhaustive()
    }
}

fn lost_task(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Unavailable, "a delivery's task ended by itself").with_source(error)
}
