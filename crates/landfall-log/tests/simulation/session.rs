//! A log on a model disk, used by one caller that waits for each answer and checks it against the reference.
//!
//! Everything here answers with a verdict: `Err` says in words which promise was broken.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    Broker, Delivery, Error, GroupName, Key, Message, Outcome, Publisher, StartAt, TopicName, TopicReader,
};
use landfall_log::{Log, Options};

use crate::disk::{Faults, ModelDisk};
use crate::reference::{Content, Mark, Reference};

pub(crate) const FOLDER: &str = "/log";

/// Within this everything happens, however busy the machine is.
const SOON: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) disk: ModelDisk,
    pub(crate) log: Log,
    pub(crate) reference: Reference,
    options: Options,
}

/// Why a session could not go on.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The log says that stored bytes are damaged, or made by a newer build.
    Refused(Error),
    /// A promise was broken.
    Broken(String),
}

impl From<Error> for Verdict {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<String> for Verdict {
    fn from(sentence: String) -> Self {
        Self::Broken(sentence)
    }
}

impl From<Verdict> for String {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Refused(error) => format!("the log refuses its own files: {error}"),
            Verdict::Broken(sentence) => sentence,
        }
    }
}

impl Session {
    /// Opens the log on `disk`, reads all of it and compares it with `reference`. What was read is a promise from
    /// then on.
    pub(crate) async fn open(disk: ModelDisk, reference: Reference, options: Options) -> Result<Self, Verdict> {
        let log = Log::open_on(Arc::new(disk.clone()), Path::new(FOLDER), options)?;
        let mut session = Self { disk, log, reference, options };
        let found = session.content().await?;
        session.reference.compare(&found)?;
        session.tell(Mark::Seen(found))?;
        Ok(session)
    }

    /// Everything that can be read from the log, where it stands.
    pub(crate) async fn content(&self) -> Result<Content, Verdict> {
        let mut content = Content::new();
        for info in self.log.topics().await? {
            let mut reader = self.log.read(&info.topic, StartAt::Beginning).await?;
            let mut partitions = vec![Vec::new(); info.partitions as usize];
            let outcome = collect(&info.topic, &mut *reader, &mut partitions).await;
            content.insert(info.topic, partitions);
            if let Err(verdict) = outcome {
                // What came before the error must be right all the same.
                self.check_prefix(&content)?;
                return Err(verdict);
            }
        }
        Ok(content)
    }

    /// Of what was read before an error, nothing may be wrong.
    fn check_prefix(&self, content: &Content) -> Result<(), String> {
        for (topic, partitions) in content {
            for (number, found) in partitions.iter().enumerate() {
                let stored = self.reference.stored().get(topic).and_then(|partitions| partitions.get(number));
                let stored = stored.map(Vec::as_slice).unwrap_or_default();
                if let Some(at) = stored.iter().zip(found).position(|(stored, found)| stored != found) {
                    return Err(format!("{topic}/{number}: a wrong message was served at offset {at}"));
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, mark: Mark) -> Result<(), String> {
        self.disk.tell(mark.clone());
        self.reference.follow(&mark, None)
    }

    pub(crate) async fn publish(&mut self, messages: Vec<Message>) -> Result<Vec<Outcome>, Verdict> {
        self.tell(Mark::Publishing(messages.clone()))?;
        let answer = tokio::time::timeout(SOON, self.log.publish(&messages)).await;
        let outcomes = answer.map_err(|_| "publishing was never answered".to_owned())?;
        self.tell(Mark::Published(outcomes.clone()))?;
        Ok(outcomes)
    }

    /// Takes in a call that was made on the log itself.
    pub(crate) fn adopt(&mut self, messages: Vec<Message>, outcomes: Vec<Outcome>) -> Result<(), Verdict> {
        self.tell(Mark::Publishing(messages))?;
        Ok(self.tell(Mark::Published(outcomes))?)
    }

    /// Lets `group` have everything of `topic` that it has not finished, and acknowledge what `finishes` says.
    pub(crate) async fn consume(
        &mut self,
        group: &GroupName,
        topic: &TopicName,
        finishes: impl Fn(&Delivery) -> bool,
    ) -> Result<(), Verdict> {
        let ends: Vec<u64> = self.ends(topic);
        let progress = self.reference.groups().get(&(group.clone(), topic.clone())).cloned().unwrap_or_default();
        // Whether there is anything that it must be given; it may be given more, and nobody would wait for that.
        let at = |offsets: &[u64], number: usize| offsets.get(number).copied().unwrap_or_default();
        let awaited: Vec<bool> =
            (0..ends.len()).map(|number| at(&progress.acknowledged, number) < ends[number]).collect();
        if !awaited.contains(&true) {
            return Ok(());
        }
        let mut subscriber = self.log.subscribe(topic, group).await?;
        let mut next: Vec<Option<u64>> = vec![None; ends.len()];
        let mut deliveries = Vec::new();
        while (0..ends.len()).any(|number| awaited[number] && next[number].is_none_or(|next| next < ends[number])) {
            let delivery = tokio::time::timeout(SOON, subscriber.next()).await;
            let delivery = delivery.map_err(|_| format!("{group} on {topic} is never given what it waits for"))?;
            let delivery = delivery?.ok_or_else(|| "the log was closed".to_owned())?;
            self.check_delivery(topic, &delivery, &mut next)?;
            deliveries.push(delivery);
        }
        self.check_resumed(group, topic, &deliveries, &progress.saved, &progress.acknowledged)?;
        // What else was given depends on how fast somebody was, and the journal must not.
        let finished = finish(&mut deliveries, ends.len(), |delivery| {
            awaited[delivery.position.partition as usize] && finishes(delivery)
        });
        if !finished.is_empty() {
            let offsets = offsets_after(&finished, &ends, &progress.saved);
            self.tell(Mark::Acknowledging(group.clone(), topic.clone(), offsets.clone()))?;
            for delivery in finished {
                delivery.ack().await?;
            }
            drop(deliveries);
            subscriber.close().await?;
            self.tell(Mark::Acknowledged(group.clone(), topic.clone(), offsets))?;
            return Ok(());
        }
        drop(deliveries);
        Ok(subscriber.close().await?)
    }

    fn check_delivery(&self, topic: &TopicName, delivery: &Delivery, next: &mut [Option<u64>]) -> Result<(), Verdict> {
        let (partition, offset) = (delivery.position.partition as usize, delivery.position.offset);
        let message = delivery.message.as_ref().map_err(|error| format!("{topic}/{partition}: {error}"))?;
        let expected = &mut next[partition];
        if expected.is_some_and(|expected| expected != offset) {
            return Err(format!("{topic}/{partition}: offset {offset} was delivered instead of {expected:?}").into());
        }
        *expected = Some(offset + 1);
        if self.reference.stored()[topic][partition].get(offset as usize) != Some(message) {
            return Err(format!("{topic}/{partition}: another message was delivered for offset {offset}").into());
        }
        Ok(())
    }

    fn check_resumed(
        &self,
        group: &GroupName,
        topic: &TopicName,
        deliveries: &[Delivery],
        saved: &[u64],
        acknowledged: &[u64],
    ) -> Result<(), Verdict> {
        for number in 0..self.ends(topic).len() {
            let first = deliveries.iter().find(|delivery| delivery.position.partition as usize == number);
            let Some(first) = first.map(|delivery| delivery.position.offset) else { continue };
            let saved = saved.get(number).copied().unwrap_or_default();
            let acknowledged = acknowledged.get(number).copied().unwrap_or_default();
            if !(saved..=acknowledged).contains(&first) {
                return Err(format!(
                    "{group} resumed {topic}/{number} at offset {first}; it had saved {saved} and acknowledged \
                     {acknowledged}"
                )
                .into());
            }
        }
        Ok(())
    }

    /// The offsets behind the last messages of `topic`.
    fn ends(&self, topic: &TopicName) -> Vec<u64> {
        let partitions = self.reference.stored().get(topic).map(Vec::as_slice).unwrap_or_default();
        partitions.iter().map(|partition| partition.len() as u64).collect()
    }

    /// Ends the process as a crash of the process does, without a power cut: what was written is there, synced or
    /// not. Opens the log again.
    pub(crate) async fn kill(self) -> Result<Self, Verdict> {
        let disk = self.disk.kill();
        drop(self.log);
        Self::open(disk, self.reference, self.options).await
    }

    pub(crate) async fn close(self) -> Result<(ModelDisk, Reference), Verdict> {
        self.log.close().await?;
        Ok((self.disk, self.reference))
    }

    pub(crate) async fn reopen(self) -> Result<Self, Verdict> {
        let options = self.options;
        let (disk, reference) = self.close().await?;
        Self::open(disk, reference, options).await
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.disk.set_faults(faults);
    }

    /// What every log must be able to do, whatever happened to it before: take a message in every partition, deliver
    /// it to every group, and find everything again.
    pub(crate) async fn goes_on(mut self) -> Result<(ModelDisk, Reference), Verdict> {
        let mut topics: Vec<(TopicName, u32)> = self
            .reference
            .stored()
            .iter()
            .map(|(topic, partitions)| (topic.clone(), partitions.len() as u32))
            .collect();
        if topics.is_empty() {
            topics.push((TopicName::new("first")?, self.options.partitions));
        }
        let probes = topics.iter().flat_map(|(topic, partitions)| {
            (0..*partitions).map(|number| {
                let key = key_of(number, *partitions);
                Message::new(topic.clone(), "it goes on").with_key(key)
            })
        });
        let outcomes = self.publish(probes.collect()).await?;
        if let Some(outcome) = outcomes.iter().find(|outcome| !outcome.is_accepted()) {
            return Err(format!("the log opens, and does not take a message: {outcome:?}").into());
        }
        let groups: Vec<_> = self.reference.groups().keys().cloned().collect();
        for (group, topic) in groups {
            self.consume(&group, &topic, |_| false).await?;
        }
        self.reopen().await?.close().await
    }
}

async fn collect(
    topic: &TopicName,
    reader: &mut dyn TopicReader,
    partitions: &mut [Vec<Message>],
) -> Result<(), Verdict> {
    loop {
        let stored = reader.read(1000).await?;
        if stored.is_empty() {
            return Ok(());
        }
        for stored in stored {
            let partition = &mut partitions[stored.position.partition as usize];
            if stored.position.offset != partition.len() as u64 {
                let expected = partition.len();
                return Err(format!("{topic}: {:?} was read where offset {expected} belongs", stored.position).into());
            }
            partition.push(stored.message?);
        }
    }
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
fn offsets_after(finished: &[Delivery], ends: &[u64], saved: &[u64]) -> Vec<u64> {
    let mut offsets: Vec<u64> = (0..ends.len()).map(|number| saved.get(number).copied().unwrap_or_default()).collect();
    for delivery in finished {
        offsets[delivery.position.partition as usize] = delivery.position.offset + 1;
    }
    offsets
}

/// Some key that belongs to partition `number`.
fn key_of(number: u32, partitions: u32) -> Key {
    let keys = (0..).map(|n| Key::new(format!("probe-{n}")).expect("it is a key"));
    keys.into_iter().find(|key| key.partition(partitions) == number).expect("every partition has keys")
}
