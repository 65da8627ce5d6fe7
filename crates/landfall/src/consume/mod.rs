//! Consume: every message takes effect once, per key in order (C1, O1, O2).
//!
//! ```text
//!   delivery ─▶ lane of its key ─▶ batch ─▶ one transaction { inbox rows, handlers' writes } ─▶ commit ─▶ acknowledge
//!                                              │ one of them fails
//!                                              ├─▶ the others commit without it
//!                                              └─▶ it goes its own way: again after a while, its lane waiting or
//!                                                  itself in the retry lane; after the maximum a dead letter, its
//!                                                  key queues behind it
//!   delayed and due, redriven dead letters ─▶ the same handler, in order, until the key flows again
//! ```
//!
//! A crash anywhere before the commit leaves nothing behind and the messages come again; after it, they come again and
//! their inbox rows turn them away. Messages of one key are handled one after the other, different keys at the same
//! time. Nothing is acknowledged before its transaction has committed, whichever other one of its batch has.

mod apart;
mod attempt;
mod batch;
mod batch_handler;
mod early;
mod front;
mod gate;
mod handler;
mod lanes;
#[cfg(feature = "tower")]
mod layered;
mod letter_topic;
mod once;
mod options;
mod parking;
#[cfg(feature = "redis")]
mod redis_front;
mod redrive;
mod retry_lane;
mod retry_topic;
mod tally;
mod trace;
mod typed;
mod work;

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    Broker, Database, Error, ErrorKind, GroupName, Inbox, InboxView, OutboxWriter, Result, Sequences, Subscriber,
    TopicName,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::companion::Companion;
use attempt::{Attempts, pause_unless_stopped};
use batch::{Apart, Done};
use early::Waiting;
use lanes::{Lane, Lanes};
use letter_topic::LetterTopic;
use retry_topic::RetryTopic;

pub use batch_handler::{BatchContext, BatchHandler, BatchHandlerFn, PlainBatch, plain_batch};
pub use front::Front;
pub use gate::{Early, SequenceCheck};
pub use handler::{Context, Handler, HandlerFn, Plain, handler_fn, plain};
#[cfg(feature = "tower")]
pub use layered::{Failed, HandlerService, Layered, layered};
pub use once::{already_done, changed};
pub use options::{Idempotence, Options, Order};
#[cfg(feature = "redis")]
pub use redis_front::RedisFront;
pub use retry_lane::RetryLane;
pub use trace::Trace;
pub use typed::{Typed, TypedFn, parse, typed};
pub use work::{Call, Each, Stumble, Together, Work};

/// How often the gauges of the lanes are set.
const SKEW_EVERY: Duration = Duration::from_secs(1);

/// Applies a topic's messages to one database, as one member of a group.
pub struct Consumer<D: Database, W> {
    broker: Arc<dyn Broker>,
    attempts: Attempts<D, W>,
    options: Options,
}

/// The same at work, shared by its tasks.
struct Member<D: Database, W> {
    broker: Arc<dyn Broker>,
    attempts: Arc<Attempts<D, W>>,
    options: Options,
}

impl<D: Inbox, H: Handler<D>> Consumer<D, Each<H>> {
    /// Calls `handler` for one message at a time.
    pub fn new(
        database: D,
        broker: Arc<dyn Broker>,
        topic: TopicName,
        group: GroupName,
        handler: H,
        options: Options,
    ) -> Self {
        Self::with(database, broker, topic, group, Each(handler), options)
    }
}

impl<D: Inbox, H: BatchHandler<D>> Consumer<D, Together<H>> {
    /// Calls `handler` for all messages of a transaction, of which there are up to [`Options::batch`].
    pub fn of_batches(
        database: D,
        broker: Arc<dyn Broker>,
        topic: TopicName,
        group: GroupName,
        handler: H,
        options: Options,
    ) -> Self {
        Self::with(database, broker, topic, group, Together(handler), options)
    }
}

impl<D: Inbox, W: Work<D>> Consumer<D, W> {
    fn with(
        database: D,
        broker: Arc<dyn Broker>,
        topic: TopicName,
        group: GroupName,
        work: W,
        options: Options,
    ) -> Self {
        let running = Arc::new(Semaphore::new(options.concurrency.max(1)));
        let Options { backoff, order, idempotence, retry_lane, lane_after, .. } = options;
        let attempts = Attempts {
            database,
            topic,
            group,
            work,
            backoff,
            retry_lane,
            lane_after,
            retry_topic: None,
            order,
            idempotence,
            gate: None,
            waiting: Waiting::default(),
            front: None,
            letters: None,
            running,
        };
        Self { broker, attempts, options }
    }

    /// Checks the numbers of messages besides their ids.
    #[must_use]
    pub fn in_sequence(mut self, check: SequenceCheck) -> Self
    where
        D: Sequences,
    {
        self.attempts.gate = Some(Box::new(check));
        self
    }

    /// Sends what is parked to `<topic>.dlq` too, through the outbox of the same transaction. `Err` if that is no
    /// name for a topic: it may be too long.
    pub fn with_letter_topic(mut self) -> Result<Self>
    where
        D: OutboxWriter,
    {
        let topic = TopicName::new(format!("{}.dlq", self.attempts.topic))?;
        self.attempts.letters = Some(Box::new(LetterTopic(topic)));
        Ok(self)
    }

    /// Asks `front` before the inbox: most copies are then turned away without a transaction.
    #[must_use]
    pub fn behind(mut self, front: impl Front) -> Self
    where
        D: InboxView,
    {
        self.attempts.front = Some(Arc::new(front));
        self
    }

    /// Works until `stop` is cancelled or the broker is closed. Handlers that are running are finished and their
    /// messages acknowledged; what was not begun is delivered again to the next member.
    ///
    /// A broker that cannot be reached is waited for. `Err` if it fails in a way that no waiting mends, such as
    /// damaged data, or if there can be no topic with the name that the retry lane would have.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let (broker, mut attempts, options) = (self.broker, self.attempts, self.options);
        if options.retry_lane == RetryLane::Topic {
            attempts.retry_topic = Some(RetryTopic::of(&attempts.topic, &*broker)?);
        }
        let stop = stop.child_token();
        let member = Member { broker, attempts: Arc::new(attempts), options };
        let drained = redrive::drain(member.attempts.clone(), member.options.clone(), stop.clone());
        let redrive = Companion::spawn("redrives dead letters", &stop, drained);
        let returning = Companion::spawn("brings back what failed", &stop, {
            let (stop, member) =
                (stop.clone(), (member.attempts.clone(), member.broker.clone(), member.options.clone()));
            async move {
                let drained = retry_topic::drain(member.0, member.1, member.2, stop.clone()).await;
                if drained.is_err() {
                    // What no waiting mends ends all of it, whichever topic it was.
                    stop.cancel();
                }
                drained
            }
        });
        let result = loop {
            match member.consume(&stop).await {
                Err(error) if error.is_temporary() => {
                    tracing::warn!(%error, "the broker cannot be read; waiting");
                    pause_unless_stopped(member.options.backoff.first, &stop).await;
                }
                result => break result,
            }
        };
        stop.cancel();
        // The broker's answer is the one that counts.
        let (redriven, returned) = (redrive.end().await, returning.end().await.flatten());
        result.and(redriven).and(returned)
    }
}

impl<D: Inbox, W: Work<D>> Member<D, W> {
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

    /// Receives, and hands batches to tasks as the handlers get free.
    async fn dispatch(
        &self,
        subscriber: &mut dyn Subscriber,
        tasks: &mut JoinSet<Done>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let mut lanes = Lanes::new(&self.options);
        let mut look = tokio::time::interval(SKEW_EVERY);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(finished) = tasks.join_next() => {
                    // A handler's panic is caught inside the task, so this can only be a bug of ours: end the
                    // membership, and everything unfinished comes again.
                    self.finished(finished.map_err(lost_task)?, &mut lanes, tasks, stop);
                }
                _ = look.tick() => self.show_skew(&lanes),
                // Before a batch is begun, so that it takes all that is there already.
                next = subscriber.next(), if lanes.has_room() => {
                    let Some(delivery) = next? else { return Ok(()) };
                    lanes.arrived(delivery);
                }
                permit = self.attempts.running.clone().acquire_owned(), if lanes.is_ready() => {
                    self.begin(permit.map_err(closed)?, &mut lanes, tasks, stop);
                }
            }
        }
    }

    /// One key that has most of the messages is seen by its lane: it grows, and the others do not.
    fn show_skew(&self, lanes: &Lanes) {
        let (deepest, in_flight) = lanes.depth();
        let labels = [("topic", self.attempts.topic.to_string()), ("group", self.attempts.group.to_string())];
        metrics::gauge!("landfall_in_flight", &labels).set(in_flight as f64);
        metrics::gauge!("landfall_lane_depth_max", &labels).set(deepest as f64);
    }

    fn begin(
        &self,
        permit: OwnedSemaphorePermit,
        lanes: &mut Lanes,
        tasks: &mut JoinSet<Done>,
        stop: &CancellationToken,
    ) {
        let batch = lanes.take(self.options.batch.max(1));
        let (attempts, stop) = (self.attempts.clone(), stop.clone());
        tasks.spawn(async move { attempts.settle_batch(batch, permit, &stop).await });
    }

    fn finished(&self, done: Done, lanes: &mut Lanes, tasks: &mut JoinSet<Done>, stop: &CancellationToken) {
        let Done { settled, apart, put_back } = done;
        for (lane, delivery) in put_back.into_iter().rev() {
            lanes.put_back(&lane, delivery);
        }
        for lane in settled {
            lanes.settled(lane);
        }
        for (lane, apart) in apart {
            // What waits for its predecessors must let them pass.
            let is_early = apart.failed.as_ref().is_some_and(|failure| self.attempts.early(failure).is_some());
            let lane = if is_early { lanes.detach(lane) } else { lane };
            self.go_alone(lane, apart, tasks, stop);
        }
    }

    fn go_alone(&self, lane: Lane, apart: Apart, tasks: &mut JoinSet<Done>, stop: &CancellationToken) {
        let (attempts, stop) = (self.attempts.clone(), stop.clone());
        tasks.spawn(async move {
            match attempts.settle_apart(apart, &stop).await {
                None => Done { settled: vec![lane], ..Done::default() },
                Some(early) => Done { apart: vec![(lane, early)], ..Done::default() },
            }
        });
    }
}

impl<D: Database, W> std::fmt::Debug for Consumer<D, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("options", &self.options).finish_non_exhaustive()
    }
}

fn lost_task(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Unavailable, "a delivery's task ended by itself").with_source(error)
}

fn closed(error: tokio::sync::AcquireError) -> Error {
    Error::new(ErrorKind::Internal, "the consumer's own semaphore was closed").with_source(error)
}
