//! Calls of a session that concern groups: consume, acknowledge, seek.

use landfall_core::adapter::Delivery;
use landfall_core::{Broker, GroupName, StartAt, TopicName};

use crate::events::Event;
use crate::promise::Partition;
use crate::reference::Progress;
use crate::session::{Failure, SOON, Session};

impl Session {
    /// Delivers to `group` everything of `topic` that it has not finished, and acknowledges what `finishes` selects.
    pub(crate) async fn consume(
        &mut self,
        group: &GroupName,
        topic: &TopicName,
        finishes: impl Fn(&Delivery) -> bool,
    ) -> Result<(), Failure> {
        let progress = self.reference.progress(group, topic);
        // The last message of each partition that must be delivered. More may come, but the session does not wait for
        // it: acknowledgements that were saved without our knowledge, or messages that are not synced yet.
        let last: Vec<Option<u64>> = self
            .partitions(topic)
            .iter()
            .enumerate()
            .map(|(number, partition)| {
                let from = at(&progress.acknowledged, number);
                (from..partition.durable).rev().find(|offset| partition.get(*offset).is_some())
            })
            .collect();
        if last.iter().all(Option::is_none) {
            return Ok(());
        }
        // From here on the log knows the group, and after the call that is durable.
        let saved = offsets_after(&[], &progress, last.len());
        self.record(Event::Acknowledging(group.clone(), topic.clone(), saved.clone()))?;
        let mut subscriber = self.log.subscribe(topic, group).await?;
        let mut delivered: Vec<Option<u64>> = vec![None; last.len()];
        let mut deliveries = Vec::new();
        while last.iter().zip(&delivered).any(|(last, delivered)| last.is_some() && *delivered < *last) {
            let delivery = tokio::time::timeout(SOON, subscriber.next()).await;
            let delivery = delivery.map_err(|_| format!("{group} on {topic} never gets an expected message"))?;
            let delivery = delivery?.ok_or_else(|| "the log was closed".to_owned())?;
            self.check_delivery(group, topic, &delivery, &progress, &mut delivered)?;
            deliveries.push(delivery);
        }
        // Further deliveries depend on timing, and the journal must not.
        let finished = finish(&mut deliveries, last.len(), |delivery| {
            last[delivery.position.partition as usize] >= Some(delivery.position.offset) && finishes(delivery)
        });
        let offsets = offsets_after(&finished, &progress, last.len());
        self.record(Event::Acknowledging(group.clone(), topic.clone(), offsets.clone()))?;
        for delivery in finished {
            delivery.ack().await?;
        }
        drop(deliveries);
        subscriber.close().await?;
        Ok(self.record(Event::Acknowledged(group.clone(), topic.clone(), offsets))?)
    }

    /// Checks that this is the expected next message.
    fn check_delivery(
        &self,
        group: &GroupName,
        topic: &TopicName,
        delivery: &Delivery,
        progress: &Progress,
        delivered: &mut [Option<u64>],
    ) -> Result<(), Failure> {
        let (number, offset) = (delivery.position.partition as usize, delivery.position.offset);
        let message = delivery.message.as_ref().map_err(|error| format!("{topic}/{number}: {error}"))?;
        let partition = &self.partitions(topic)[number];
        // Messages removed by compaction count as finished.
        let next_from = |offset: u64| partition.next_from(offset, partition.end());
        let (earliest, latest) = match delivered[number] {
            Some(before) => (next_from(before + 1), next_from(before + 1)),
            None => (at(&progress.saved, number), next_from(at(&progress.acknowledged, number))),
        };
        if !(earliest..=latest).contains(&offset) {
            let why = format!(
                "{group} got offset {offset} of {topic}/{number}; expected {earliest} to {latest} after \
                 {progress:?}, {delivered:?}"
            );
            return Err(why.into());
        }
        delivered[number] = Some(offset);
        if partition.get(offset) != Some(message) {
            return Err(format!("{topic}/{number}: a wrong message was delivered for offset {offset}").into());
        }
        Ok(())
    }

    /// Moves `group` to `to`.
    pub(crate) async fn seek(&mut self, group: &GroupName, topic: &TopicName, to: StartAt) -> Result<(), Failure> {
        // The end that readers see is only known if every accepted message is synced.
        let to = if self.reference.is_synced() { to } else { StartAt::Beginning };
        let within = |partition: &Partition| match to {
            StartAt::Offset(offset) => offset.clamp(partition.start, partition.end()),
            StartAt::End => partition.end(),
            _ => partition.start,
        };
        let offsets: Vec<u64> = self.partitions(topic).iter().map(within).collect();
        if offsets.is_empty() {
            return Ok(());
        }
        self.record(Event::Seeking(group.clone(), topic.clone(), offsets.clone()))?;
        // If the process is dead the call fails, and its progress is unknown.
        match self.log.seek(topic, group, to).await {
            Ok(()) => Ok(self.record(Event::SeekCompleted(group.clone(), topic.clone(), offsets))?),
            Err(_) if self.disk.has_fault() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn partitions(&self, topic: &TopicName) -> &[Partition] {
        self.reference.topics().get(topic).map(|topic| topic.partitions.as_slice()).unwrap_or_default()
    }
}

fn at(offsets: &[u64], number: usize) -> u64 {
    offsets.get(number).copied().unwrap_or_default()
}

/// Removes the deliveries to acknowledge from `deliveries`: of each partition up to the first that `finishes` rejects.
fn finish(deliveries: &mut Vec<Delivery>, partitions: usize, finishes: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
    let mut stopped = vec![false; partitions];
    let (finished, rest) = std::mem::take(deliveries).into_iter().partition(|delivery| {
        let stopped = &mut stopped[delivery.position.partition as usize];
        *stopped |= !finishes(delivery);
        !*stopped
    });
    *deliveries = rest;
    finished
}

/// The progress of a group after `finished` are acknowledged.
fn offsets_after(finished: &[Delivery], progress: &Progress, partitions: usize) -> Vec<u64> {
    let mut offsets: Vec<u64> = (0..partitions).map(|number| at(&progress.saved, number)).collect();
    for delivery in finished {
        offsets[delivery.position.partition as usize] = delivery.position.offset + 1;
    }
    offsets
}
