//! One member of a group on one topic.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Delivery, GroupName, Result, Subscriber, TopicName};
use tokio::sync::watch;

use crate::lanes::Lanes;
use crate::log::Log;
use crate::members::Member;
use crate::record::Record;
use crate::topic::{self, Topic};
use crate::tracker::{Receipt, Tracker};

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
    /// How many partitions the topic had when the lanes were made.
    partitions: usize,
    lanes: Lanes,
    progress: watch::Receiver<()>,
}

impl Source {
    fn has_grown(&self) -> bool {
        self.topic.partitions().len() > self.partitions
    }
}

impl LogSubscriber {
    pub(crate) fn join(log: &Log, topic: &TopicName, group: &GroupName) -> Self {
        let offsets = log.groups().offsets(group, topic);
        let member = offsets.members().join();
        Self {
            log: log.clone(),
            name: topic.clone(),
            closed: log.closed(),
            source: None,
            created: log.topics().created(),
            tracker: Arc::new(Tracker::new(offsets, Arc::downgrade(log.flusher()))),
            member,
        }
    }

    /// Finds the topic, if it has come into being, and the partitions of it that are this member's now.
    fn find_source(&mut self) {
        let topic = match &self.source {
            Some(source) if !self.member.has_changed() && !source.has_grown() => return,
            Some(source) => Arc::clone(&source.topic),
            None => {
                // Marked as seen before looking, so that a topic created in between is not missed.
                self.created.mark_unchanged();
                let Some(topic) = self.log.topics().get(&self.name) else { return };
                topic
            }
        };
        let partitions = topic.partitions();
        let assigned = self.member.partitions(partitions.len() as u32);
        let mut lanes = Lanes::default();
        for (number, from) in assigned.iter().zip(self.tracker.assign(&assigned)) {
            lanes.add(partitions[*number as usize].clone(), from);
        }
        let (progress, partitions) = (topic.progress(), partitions.len());
        self.source = Some(Source { topic, partitions, lanes, progress });
    }

    /// A record that is in memory or can be read now; `None` if there is none yet or too much is in flight.
    async fn next_record(&mut self) -> Result<Option<(u32, Record)>> {
        if self.tracker.count() >= self.log.options().max_in_flight {
            return Ok(None);
        }
        let Some(source) = &mut self.source else { return Ok(None) };
        source.progress.mark_unchanged();
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
        // The senders of what is awaited here live as long as the log, and so as long as this subscriber.
        let more = async {
            match &mut self.source {
                None => drop(self.created.changed().await),
                Some(source) => tokio::select! {
                    _ = source.progress.changed(), if has_room => {}
                    () = self.member.changed() => {}
                },
            }
        };
        tokio::select! {
            () = more => {}
            () = self.tracker.changed() => {}
            _ = self.closed.changed() => {}
        }
    }

    fn delivery(&self, record: &Record, receipt: Receipt) -> Delivery {
        Delivery::new(record.message(&self.name), receipt.position(), Box::new(receipt))
    }
}

#[async_trait]
impl Subscriber for LogSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            if *self.closed.borrow_and_update() {
                return Ok(None);
            }
            if self.tracker.is_discarded() {
                return Err(topic::deleted(&self.name));
            }
            self.find_source();
            if let Some((record, receipt)) = self.tracker.redeliver() {
                return Ok(Some(self.delivery(&record, receipt)));
            }
            let record = self.next_record().await;
            // A file that is gone because the topic was deleted is told as what it is.
            if record.is_err() && self.source.as_ref().is_some_and(|source| source.topic.is_deleted()) {
                return Err(topic::deleted(&self.name));
            }
            if let Some((partition, record)) = record? {
                let receipt = self.tracker.deliver(partition, &record);
                return Ok(Some(self.delivery(&record, receipt)));
            }
            self.wait().await;
        }
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.tracker.end();
        if *self.closed.borrow() {
            // Closing the log has saved everything, or said that it could not.
            return Ok(());
        }
        self.log.flusher().flush().await
    }
}

impl Drop for LogSubscriber {
    fn drop(&mut self) {
        self.tracker.end();
    }
}
