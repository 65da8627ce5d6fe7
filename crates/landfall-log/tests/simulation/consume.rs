//! What a session does with groups: consume, acknowledge, seek.

use landfall_core::{Broker, Delivery, GroupName, StartAt, TopicName};

use crate::marks::Mark;
use crate::promise::Partition;
use crate::reference::Progress;
use crate::session::{SOON, Session, Verdict};

impl Session {
    /// Lets `group` have everything of `topic` that it has not finished, and acknowledge what `finishes` says.
    pub(crate) async fn consume(
        &mut self,
        group: &GroupName,
        topic: &TopicName,
        finishes: impl Fn(&Delivery) -> bool,
    ) -> Result<(), Verdict> {
        let progress = self.reference.progress(group, topic);
        // Which message of each partition it must be given at last. It may be given more, and nobody would wait for
        // that: what it finished without our knowing, or what is not synced yet.
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
        // From here on the log knows that there is such a group, and at the end that is durable.
        let saved = offsets_after(&[], &progress, last.len());
        self.tell(Mark::Acknowledging(group.clone(), topic.clone(), saved.clone()))?;
        let mut subscriber = self.log.subscribe(topic, group).await?;
        let mut given: Vec<Option<u64>> = vec![None; last.len()];
        let mut deliveries = Vec::new();
        while last.iter().zip(&given).any(|(last, given)| last.is_some() && *given < *last) {
            let delivery = tokio::time::timeout(SOON, subscriber.next()).await;
            let delivery = delivery.map_err(|_| format!("{group} on {topic} is never given what it waits for"))?;
            let delivery = delivery?.ok_or_else(|| "the log was closed".to_owned())?;
            self.check_delivery(group, topic, &delivery, &progress, &mut given)?;
            deliveries.push(delivery);
        }
        // What else was given depends on how fast somebody was, and the journal must not.
        let finished = finish(&mut deliveries, last.len(), |delivery| {
            last[delivery.position.partition as usize] >= Some(delivery.position.offset) && finishes(delivery)
        });
        let offsets = offsets_after(&finished, &progress, last.len());
        self.tell(Mark::Acknowledging(group.clone(), topic.clone(), offsets.clone()))?;
        for delivery in finished {
            delivery.ack().await?;
        }
        drop(deliveries);
        subscriber.close().await?;
        Ok(self.tell(Mark::Acknowledged(group.clone(), topic.clone(), offsets))?)
    }

    /// Whether this is the message that had to come next.
    fn check_delivery(
        &self,
        group: &GroupName,
        topic: &TopicName,
        delivery: &Delivery,
        progress: &Progress,
        given: &mut [Option<u64>],
    ) -> Result<(), Verdict> {
        let (number, offset) = (delivery.position.partition as usize, delivery.position.offset);
        let message = delivery.message.as_ref().map_err(|error| format!("{topic}/{number}: {error}"))?;
        let partition = &self.partitions(topic)[number];
        // What compaction removed counts as finished, whoever comes to it.
        let next_from = |offset: u64| partition.next_from(offset, partition.end());
        let (earliest, latest) = match given[number] {
            Some(before) => (next_from(before + 1), next_from(before + 1)),
            None => (at(&progress.saved, number), next_from(at(&progress.acknowledged, number))),
        };
        if !(earliest..=latest).contains(&offset) {
            let sentence = format!(
                "{group} was given offset {offset} of {topic}/{number}, and {earliest} to {latest} is right after \
                 {progress:?}, {given:?}"
            );
            return Err(sentence.into());
        }
        given[number] = Some(offset);
        if partition.get(offset) != Some(message) {
            return Err(format!("{topic}/{number}: another message was delivered for offset {offset}").into());
        }
        Ok(())
    }

    /// Makes `group` go on from `to`.
    pub(crate) async fn seek(&mut self, group: &GroupName, topic: &TopicName, to: StartAt) -> Result<(), Verdict> {
        // Where the end is that readers see, nobody knows unless everything is synced.
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
        self.tell(Mark::Seeking(group.clone(), topic.clone(), offsets.clone()))?;
        // It may fail because the process is dead, and then nobody knows how far it came.
        match self.log.seek(topic, group, to).await {
            Ok(()) => Ok(self.tell(Mark::Sought(group.clone(), topic.clone(), offsets))?),
            Err(_) if self.disk.is_troubled() => Ok(()),
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

/// Takes those out of `deliveries` that are to be acknowledged: of each partition up to the first that is not.
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

/// How far a group has come once `finished` are acknowledged.
fn offsets_after(finished: &[Delivery], progress: &Progress, partitions: usize) -> Vec<u64> {
    let mut offsets: Vec<u64> = (0..partitions).map(|number| at(&progress.saved, number)).collect();
    for delivery in finished {
        offsets[delivery.position.partition as usize] = delivery.position.offset + 1;
    }
    offsets
}
