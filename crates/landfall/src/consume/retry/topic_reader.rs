//! Reads the retry topic and attempts each message again when it is due.

use std::sync::Arc;

use landfall_core::adapter::{Arrival, Delivery};
use landfall_core::{Broker, Database, GroupName, Inbox, Message, Result, Timestamp};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::attempt_count::{AttemptCount, MAX_RETRY_AFTER};
use super::lane::RetryRouter;
use super::pause::sleep_unless_stopped;
use super::topic::Returned;
use crate::consume::dispatch::{Disposition, IsolatedRunner, Progress, acknowledge};
use crate::consume::options::Options;

/// A member of the group on the retry topic.
pub(crate) struct RetryTopicReader<D: Database> {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) group: GroupName,
    pub(crate) router: Arc<RetryRouter>,
    pub(crate) runner: Arc<IsolatedRunner<D>>,
    pub(crate) options: Options,
}

impl<D: Inbox> RetryTopicReader<D> {
    /// Works until `stop` is cancelled. Rejoins after temporary broker errors.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<()> {
        while !stop.is_cancelled() {
            match self.receive(&stop).await {
                Err(error) if error.is_temporary() => {
                    tracing::warn!(%error, "retry topic unavailable, backing off");
                    sleep_unless_stopped(self.options.backoff.first, &stop).await;
                }
                result => return result,
            }
        }
        Ok(())
    }

    /// One membership, from joining the group to leaving it.
    async fn receive(self: &Arc<Self>, stop: &CancellationToken) -> Result<()> {
        let Some(topic) = self.router.topic() else { return Ok(()) };
        let mut subscriber = self.broker.subscribe(topic.name(), &self.group).await?;
        // Each message waits in a task of its own until it is due, so that a long pause delays no shorter one.
        let capacity = Arc::new(Semaphore::new(self.options.capacity()));
        let membership = stop.child_token();
        let mut tasks = JoinSet::new();
        let result = loop {
            let permit = tokio::select! {
                () = stop.cancelled() => break Ok(()),
                Some(_) = tasks.join_next() => continue,
                permit = capacity.clone().acquire_owned() => permit,
            };
            let delivery = tokio::select! {
                () = stop.cancelled() => break Ok(()),
                next = subscriber.next() => match next {
                    Ok(Some(delivery)) => delivery,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                },
            };
            let (reader, stop) = (self.clone(), membership.clone());
            tasks.spawn(async move {
                reader.settle(delivery, &stop).await;
                drop(permit);
            });
        };
        membership.cancel();
        while tasks.join_next().await.is_some() {}
        result.and(subscriber.close().await)
    }

    async fn settle(&self, delivery: Delivery, stop: &CancellationToken) {
        let (moved, position, acknowledgement) = delivery.into_parts();
        let disposition = match &moved {
            Ok(moved) => self.attempt(moved, stop).await,
            Err(error) => self.runner.park_unreadable(error, position, stop).await,
        };
        acknowledge::conclude(acknowledgement, disposition).await;
    }

    async fn attempt(&self, moved: &Message, stop: &CancellationToken) -> Option<Disposition> {
        let returned = self.router.topic()?.restore(moved, &self.group);
        let Some(Returned { message, origin, attempts, due }) = returned else { return Some(Disposition::OtherGroup) };
        // Bounded, because clocks differ: one that is hours ahead must not defer the message for hours.
        let left = Timestamp::now().elapsed_since(due).min(self.options.backoff.cap.max(MAX_RETRY_AFTER));
        if !sleep_unless_stopped(left, stop).await {
            return None;
        }
        let progress = Progress { count: AttemptCount::from_failures(attempts), failure: None, in_lane: false };
        self.runner.settle(Arrival { message: &message, origin }, progress, stop).await
    }
}
