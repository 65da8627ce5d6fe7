//! A subscriber: one member of a group on one topic.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_broker_toolkit::{InFlightMessage, Receipt};
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{GroupName, Position, Result, TopicName};
use tokio::sync::watch;

use crate::group::deliveries::{Delivered, MemberDeliveries};
use crate::group::member::Member;
use crate::log::Log;
use crate::read::lanes::Lanes;
use crate::read::seek;
use crate::storage::record::Record;
use crate::topic::open::{self as topic, Topic};

/// Delivers the partitions that this member owns, each from the group's progress on.
pub(crate) struct LogSubscriber {
    log: Log,
    name: TopicName,
    closed: watch::Receiver<bool>,
    /// `None` while the topic does not exist.
    source: Option<Source>,
    created: watch::Receiver<()>,
    deliveries: Arc<MemberDeliveries>,
    member: Member,
}

struct Source {
    topic: Arc<Topic>,
    /// The partition count at the last assignment.
    partition_count: usize,
    /// The partitions that are read, each with its generation.
    assigned: Vec<(u32, u64)>,
    lanes: Lanes,
    progress: watch::Receiver<()>,
}

impl LogSubscriber {
    pub(crate) fn join(log: &Log, topic: &TopicName, group: &GroupName) -> Self {
        let group = log.all_groups().get(group, topic);
        let member = Member::join(Arc::clone(&group));
        if let Err(error) = log.flusher().save(Arc::clone(&group)) {
            tracing::debug!(%error, "group joined a closed log; its membership is not saved");
        }
        Self {
            log: log.clone(),
            name: topic.clone(),
            closed: log.closed(),
            source: None,
            created: log.topics().created(),
            deliveries: Arc::new(MemberDeliveries::new(group, member.id(), Arc::downgrade(log.flusher()))),
            member,
        }
    }

    /// Finds the topic, if it exists, and the partitions of it that this member owns now.
    fn find_source(&mut self) -> Result<()> {
        // Mark as seen before reading, so that a creation, growth or write in between is not missed.
        self.created.mark_unchanged();
        if let Some(source) = &mut self.source {
            source.progress.mark_unchanged();
        }
        let Some(topic) = self.log.topics().get(&self.name) else {
            self.source = None;
            self.deliveries.assign(&self.member.partitions(&[]));
            return Ok(());
        };
        let progress = topic.progress();
        let partitions = topic.partitions();
        let partition_count = partitions.len();
        fail::fail_point!("landfall-log::topic-looked-at");
        // A topic that was deleted and recreated under the same name is a different topic.
        self.source.take_if(|source| !Arc::ptr_eq(&source.topic, &topic));
        let is_known = self.source.as_ref().is_some_and(|source| source.partition_count == partition_count);
        if is_known && !self.member.has_changed() {
            return Ok(());
        }
        let starts = partitions.iter().map(|partition| seek::start(&**partition)).collect::<Result<Vec<_>>>()?;
        let assigned = self.member.partitions(&starts);
        let from = self.deliveries.assign(&assigned);
        let numbers: Vec<_> = assigned.iter().map(|assigned| (assigned.partition, assigned.generation)).collect();
        if let Some(source) = self.source.as_mut().filter(|source| source.assigned == numbers) {
            // Only other members were affected, so the records that were read ahead stay valid.
            source.partition_count = partition_count;
            return Ok(());
        }
        let mut lanes = Lanes::default();
        for ((number, _), from) in numbers.iter().zip(from) {
            lanes.add(partitions[*number as usize].clone(), from);
        }
        self.source = Some(Source { topic, partition_count, assigned: numbers, lanes, progress });
        Ok(())
    }

    /// Returns a record in memory or readable now; `None` if there is none yet or too many are in flight.
    async fn next_record(&mut self) -> Result<Option<(u32, Record)>> {
        if self.deliveries.count() >= self.log.options().max_in_flight {
            return Ok(None);
        }
        let Some(source) = &mut self.source else { return Ok(None) };
        loop {
            source.lanes.advance()?;
            if let Some(found) = source.lanes.pop() {
                return Ok(Some(found));
            }
            if !source.lanes.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Waits until there may be something to deliver.
    async fn wait(&mut self) {
        let has_room = self.deliveries.count() < self.log.options().max_in_flight;
        let session_expiry = self.member.deadline();
        // The senders awaited here live as long as the log, and so as long as this subscriber.
        let progress = async {
            match &mut self.source {
                Some(source) if has_room => drop(source.progress.changed().await),
                _ => std::future::pending().await,
            }
        };
        let session_expiry = async {
            match session_expiry {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = progress => {}
            _ = self.created.changed() => {}
            () = self.member.changed() => {}
            () = self.deliveries.changed() => {}
            () = session_expiry => {}
            _ = self.closed.changed() => {}
        }
    }

    fn delivery(&self, message: InFlightMessage<u64, Delivered>) -> Delivery {
        let position = Position { partition: message.partition, offset: message.offset };
        let decoded = message.content.record.message(&self.name);
        Delivery::new(decoded, position, Receipt::new(self.deliveries.clone(), message))
    }
}

#[async_trait]
impl Subscriber for LogSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let _waiting = self.member.wait();
        loop {
            if *self.closed.borrow_and_update() {
                return Ok(None);
            }
            self.member.expire_sessions();
            let found = self.find_source();
            // Checked after the source, which marks every change as seen. A deletion before is detected here, and a
            // later one wakes the wait.
            if self.deliveries.is_discarded() {
                return Err(topic::deleted(&self.name));
            }
            found?;
            if let Some(message) = self.deliveries.next() {
                return Ok(Some(self.delivery(message)));
            }
            let record = self.next_record().await;
            // If a file is gone because the topic was deleted, report that instead.
            if record.is_err() && self.source.as_ref().is_some_and(|source| source.topic.is_deleted()) {
                return Err(topic::deleted(&self.name));
            }
            match record? {
                Some((partition, record)) if record.is_removed() => {
                    self.deliveries.skip_removed(partition, record.offset)?;
                }
                Some((partition, record)) => {
                    // Ignored if a previous owner has finished it, or the partition has moved meanwhile.
                    self.deliveries.deliver(partition, record);
                    if let Some(message) = self.deliveries.next() {
                        return Ok(Some(self.delivery(message)));
                    }
                }
                None => self.wait().await,
            }
        }
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.deliveries.close();
        if *self.closed.borrow() {
            // Closing the log has saved everything, or reported that it could not.
            return Ok(());
        }
        match self.log.flusher().flush().await {
            // The log was closed just now, which saves the same.
            Err(_) if *self.closed.borrow() => Ok(()),
            flushed => flushed,
        }
    }
}

impl Drop for LogSubscriber {
    fn drop(&mut self) {
        self.deliveries.close();
    }
}
