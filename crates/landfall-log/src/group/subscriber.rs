//! One member of a group on one topic.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_broker_toolkit::{InFlightMessage, Receipt};
use landfall_core::{Delivery, GroupName, Position, Result, Subscriber, TopicName};
use tokio::sync::watch;

use crate::group::member::Member;
use crate::group::tracker::{Delivered, Tracker};
use crate::log::Log;
use crate::read::lanes::Lanes;
use crate::read::seek;
use crate::storage::record::Record;
use crate::topic::open::{self as topic, Topic};

/// Delivers the partitions that belong to this member, each from where its group has come to.
pub(crate) struct LogSubscriber {
    log: Log,
    name: TopicName,
    closed: watch::Receiver<bool>,
    /// `None` while the topic does not exist.
    source: Option<Source>,
    created: watch::Receiver<()>,
    tracker: Arc<Tracker>,
    member: Member,
}

struct Source {
    topic: Arc<Topic>,
    /// How many the topic had when they were last shared out.
    partition_count: usize,
    /// The partitions that are read, each with its generation.
    assigned: Vec<(u32, u64)>,
    lanes: Lanes,
    progress: watch::Receiver<()>,
}

impl LogSubscriber {
    pub(crate) fn join(log: &Log, topic: &TopicName, group: &GroupName) -> Self {
        let group = log.every_group().get(group, topic);
        let member = Member::join(Arc::clone(&group));
        if let Err(error) = log.flusher().save(Arc::clone(&group)) {
            tracing::debug!(%error, "a group that joins a closed log is not saved");
        }
        Self {
            log: log.clone(),
            name: topic.clone(),
            closed: log.closed(),
            source: None,
            created: log.topics().created(),
            tracker: Arc::new(Tracker::new(group, member.id(), Arc::downgrade(log.flusher()))),
            member,
        }
    }

    /// Finds the topic, if it has come into being, and the partitions of it that are this member's now.
    fn find_source(&mut self) -> Result<()> {
        // Marked as seen before looking, so that a topic created, grown or written to in between is not missed.
        self.created.mark_unchanged();
        if let Some(source) = &mut self.source {
            source.progress.mark_unchanged();
        }
        let Some(topic) = self.log.topics().get(&self.name) else {
            self.source = None;
            self.tracker.assign(&self.member.partitions(&[]));
            return Ok(());
        };
        let progress = topic.progress();
        let partitions = topic.partitions();
        let partition_count = partitions.len();
        fail::fail_point!("landfall-log::topic-looked-at");
        // One that was deleted and created again is another, although its name is the same.
        self.source.take_if(|source| !Arc::ptr_eq(&source.topic, &topic));
        let is_known = self.source.as_ref().is_some_and(|source| source.partition_count == partition_count);
        if is_known && !self.member.has_changed() {
            return Ok(());
        }
        let starts = partitions.iter().map(|partition| seek::start(&**partition)).collect::<Result<Vec<_>>>()?;
        let assigned = self.member.partitions(&starts);
        let from = self.tracker.assign(&assigned);
        let numbers: Vec<_> = assigned.iter().map(|assigned| (assigned.partition, assigned.generation)).collect();
        if let Some(source) = self.source.as_mut().filter(|source| source.assigned == numbers) {
            // Others have come or gone, and what is read ahead here is still good.
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

    /// A record that is in memory or can be read now; `None` if there is none yet or too much is in flight.
    async fn next_record(&mut self) -> Result<Option<(u32, Record)>> {
        if self.tracker.count() >= self.log.options().max_in_flight {
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

    /// Waits until there may be something to do.
    async fn wait(&mut self) {
        let has_room = self.tracker.count() < self.log.options().max_in_flight;
        let silence = self.member.deadline();
        // The senders of what is awaited here live as long as the log, and so as long as this subscriber.
        let progress = async {
            match &mut self.source {
                Some(source) if has_room => drop(source.progress.changed().await),
                _ => std::future::pending().await,
            }
        };
        let silence = async {
            match silence {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = progress => {}
            _ = self.created.changed() => {}
            () = self.member.changed() => {}
            () = self.tracker.changed() => {}
            () = silence => {}
            _ = self.closed.changed() => {}
        }
    }

    fn delivery(&self, message: InFlightMessage<u64, Delivered>) -> Delivery {
        let position = Position { partition: message.partition, offset: message.offset };
        let decoded = message.content.record.message(&self.name);
        Delivery::new(decoded, position, Receipt::new(self.tracker.clone(), message))
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
            self.member.pass_over_silent();
            let found = self.find_source();
            // Looked at after the source, which marks every change as seen: one that came before is told here, one that
            // comes after wakes whoever waits.
            if self.tracker.is_discarded() {
                return Err(topic::deleted(&self.name));
            }
            found?;
            if let Some(message) = self.tracker.next() {
                return Ok(Some(self.delivery(message)));
            }
            let record = self.next_record().await;
            // A file that is gone because the topic was deleted is told as what it is.
            if record.is_err() && self.source.as_ref().is_some_and(|source| source.topic.is_deleted()) {
                return Err(topic::deleted(&self.name));
            }
            match record? {
                Some((partition, record)) if record.is_removed() => {
                    self.tracker.pass_over(partition, record.offset)?;
                }
                Some((partition, record)) => {
                    // Ignored if it was finished before it came here, or if its partition has moved meanwhile.
                    self.tracker.deliver(partition, record);
                    if let Some(message) = self.tracker.next() {
                        return Ok(Some(self.delivery(message)));
                    }
                }
                None => self.wait().await,
            }
        }
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.tracker.end();
        if *self.closed.borrow() {
            // Closing the log has saved everything, or said that it could not.
            return Ok(());
        }
        match self.log.flusher().flush().await {
            // It was closed just now, which saves the same.
            Err(_) if *self.closed.borrow() => Ok(()),
            flushed => flushed,
        }
    }
}

impl Drop for LogSubscriber {
    fn drop(&mut self) {
        self.tracker.end();
    }
}
