//! Receives deliveries, queues them in key lanes, and runs batches as transactions become free.

pub(crate) mod acknowledge;
mod batch;
mod isolated;
mod lanes;

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::Subscriber;
use landfall_core::{Broker, Database, Error, ErrorKind, GroupName, Inbox, Result, TopicName};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::options::Options;
use super::sequence::SequenceGuard;
use batch::BatchResult;
use isolated::Isolated;
use lanes::{Lane, Lanes};

pub(crate) use batch::BatchRunner;
pub(crate) use isolated::{Disposition, IsolatedRunner, Progress};

/// How often the gauges of the key lanes are set.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// A member of the group on the main topic.
pub(crate) struct Dispatcher<D: Database> {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) options: Options,
    pub(crate) batches: Arc<BatchRunner<D>>,
    pub(crate) isolated: Arc<IsolatedRunner<D>>,
    pub(crate) sequence: Arc<SequenceGuard<D>>,
    pub(crate) permits: Arc<Semaphore>,
}

impl<D: Inbox> Dispatcher<D> {
    /// One membership, from joining the group to leaving it.
    pub(crate) async fn run(&self, stop: &CancellationToken) -> Result<()> {
        if stop.is_cancelled() {
            return Ok(());
        }
        let mut subscriber = self.broker.subscribe(&self.topic, &self.group).await?;
        // A broker failure also ends the waiting of this membership's tasks, but nothing else of the caller's.
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
        tasks: &mut JoinSet<BatchResult>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let mut lanes = Lanes::new(&self.options);
        let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(finished) = tasks.join_next() => {
                    // A handler's panic is caught inside the task, so a failed task is a bug of this crate. The
                    // membership ends, and everything unfinished is redelivered.
                    self.finished(finished.map_err(lost_task)?, &mut lanes, tasks, stop);
                }
                _ = gauges.tick() => self.set_gauges(&lanes),
                // Before the next batch starts, so that it takes everything that has arrived.
                next = subscriber.next(), if lanes.has_capacity() => {
                    let Some(delivery) = next? else { return Ok(()) };
                    lanes.push(delivery);
                }
                permit = self.permits.clone().acquire_owned(), if lanes.is_ready() => {
                    self.start_batch(permit.map_err(semaphore_closed)?, &mut lanes, tasks, stop);
                }
            }
        }
    }

    /// A hot key shows as a growing deepest lane.
    fn set_gauges(&self, lanes: &Lanes) {
        let (deepest, in_flight) = lanes.depth();
        let labels = [("topic", self.topic.to_string()), ("group", self.group.to_string())];
        metrics::gauge!("landfall_in_flight", &labels).set(in_flight as f64);
        metrics::gauge!("landfall_lane_depth_max", &labels).set(deepest as f64);
    }

    fn start_batch(
        &self,
        permit: OwnedSemaphorePermit,
        lanes: &mut Lanes,
        tasks: &mut JoinSet<BatchResult>,
        stop: &CancellationToken,
    ) {
        let batch = lanes.take(self.options.batch);
        let (batches, stop) = (self.batches.clone(), stop.clone());
        tasks.spawn(async move { batches.run(batch, permit, &stop).await });
    }

    fn finished(
        &self,
        result: BatchResult,
        lanes: &mut Lanes,
        tasks: &mut JoinSet<BatchResult>,
        stop: &CancellationToken,
    ) {
        let BatchResult { settled, isolated, put_back } = result;
        for (lane, delivery) in put_back.into_iter().rev() {
            lanes.put_back(&lane, delivery);
        }
        for lane in settled {
            lanes.settled(lane);
        }
        for (lane, isolated) in isolated {
            // An early message must let its predecessors pass.
            let is_early = isolated.failure.as_ref().is_some_and(|failure| self.sequence.early(failure).is_some());
            let lane = if is_early { lanes.detach(lane) } else { lane };
            self.start_isolated(lane, isolated, tasks, stop);
        }
    }

    fn start_isolated(
        &self,
        lane: Lane,
        isolated: Isolated,
        tasks: &mut JoinSet<BatchResult>,
        stop: &CancellationToken,
    ) {
        let (runner, stop) = (self.isolated.clone(), stop.clone());
        tasks.spawn(async move {
            match runner.run(isolated, &stop).await {
                None => BatchResult { settled: vec![lane], ..BatchResult::default() },
                Some(early) => BatchResult { isolated: vec![(lane, early)], ..BatchResult::default() },
            }
        });
    }
}

fn lost_task(error: JoinError) -> Error {
    Error::new(ErrorKind::Unavailable, "a delivery task exited unexpectedly; this is a bug").with_source(error)
}

fn semaphore_closed(error: AcquireError) -> Error {
    Error::new(ErrorKind::Internal, "the consumer's semaphore is closed; this is a bug").with_source(error)
}
