//! A log on a model disk, used by one caller that waits for each answer and checks it against the reference.
//!
//! Everything here answers with a verdict: `Err` says in words which promise was broken.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, Error, Key, Message, Outcome, ProducerName, Publisher, StartAt, TopicName, TopicReader};
use landfall_log::{Acknowledge, Log, Options, Producer};

use crate::content::{Content, FoundPartition, FoundTopic};
use crate::disk::{Faults, ModelDisk};
use crate::marks::{Answer, Call, Mark};
use crate::reference::Reference;

pub(crate) const FOLDER: &str = "/log";

/// Within this everything happens, however busy the machine is.
pub(crate) const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) disk: ModelDisk,
    pub(crate) log: Log,
    pub(crate) reference: Reference,
    /// What was under way when the process before this one ended.
    pub(crate) interrupted: Option<Call>,
    /// Every instance of each producer that was registered in this session, the newest last.
    pub(crate) producers: BTreeMap<ProducerName, Vec<Producer>>,
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
        let (interrupted, producers) = (reference.call().cloned(), BTreeMap::new());
        let mut session = Self { disk, log, reference, interrupted, producers, options };
        let found = session.content().await?;
        session.reference.compare(&found)?;
        session.tell(Mark::Seen(found))?;
        Ok(session)
    }

    /// The same, with a process before it that dies after so many changes, if any are given.
    pub(crate) async fn open_at_last(
        disk: ModelDisk,
        reference: Reference,
        options: Options,
        stumbles: Option<u64>,
    ) -> Result<Self, Verdict> {
        if stumbles.is_none() {
            return Self::open(disk, reference, options).await;
        }
        disk.set_faults(Faults { kill_after: stumbles, ..Faults::default() });
        let opened = Log::open_on(Arc::new(disk.clone()), Path::new(FOLDER), options);
        if !disk.is_dead() {
            opened?;
        }
        Self::open(disk.kill(), reference, options).await
    }

    /// Everything that can be read from the log, where it stands.
    pub(crate) async fn content(&self) -> Result<Content, Verdict> {
        let mut content = Content::new();
        for described in self.log.describe_all()? {
            let partitions = described.partitions.iter();
            let partitions = partitions.map(|partition| {
                let (start, end) = (partition.start, partition.end);
                FoundPartition { start, end, messages: BTreeMap::new() }
            });
            let mut found = FoundTopic { settings: described.settings, partitions: partitions.collect() };
            let mut reader = self.log.read(&described.topic, StartAt::Beginning).await?;
            let outcome = collect(&described.topic, &mut *reader, &mut found.partitions).await;
            content.insert(described.topic, found);
            if let Err(verdict) = outcome {
                // What came before the error must be right all the same.
                self.check_served(&content)?;
                return Err(verdict);
            }
        }
        Ok(content)
    }

    /// Of what was read before an error, nothing may be wrong.
    fn check_served(&self, content: &Content) -> Result<(), String> {
        for (name, found) in content {
            let Some(topic) = self.reference.topics().get(name) else { continue };
            for (number, (stored, found)) in topic.partitions.iter().zip(&found.partitions).enumerate() {
                let is_wrong = |(offset, message): &(&u64, &Message)| {
                    stored.messages.get(**offset as usize).is_some_and(|stored| stored != *message)
                };
                if let Some((offset, _)) = found.messages.iter().find(is_wrong) {
                    return Err(format!("{name}/{number}: a wrong message was served at offset {offset}"));
                }
            }
        }
        Ok(())
    }

    /// Reads what the open log shows; all of it is durable.
    pub(crate) async fn look(&mut self) -> Result<(), Verdict> {
        let found = self.content().await?;
        self.reference.compare(&found)?;
        Ok(self.tell(Mark::Read(found))?)
    }

    pub(crate) fn tell(&mut self, mark: Mark) -> Result<(), String> {
        self.disk.tell(mark.clone());
        self.reference.follow(&mark, None)
    }

    pub(crate) async fn publish(&mut self, messages: Vec<Message>) -> Result<Vec<Outcome>, Verdict> {
        self.tell(Mark::Calling(Call::Publish(messages.clone())))?;
        let answer = tokio::time::timeout(SOON, self.log.publish(&messages)).await;
        let outcomes = answer.map_err(|_| "publishing was never answered".to_owned())?;
        self.tell(Mark::Answered(Answer::Outcomes(outcomes.clone())))?;
        Ok(outcomes)
    }

    /// Takes in a call that was made on the log itself.
    pub(crate) fn adopt(&mut self, messages: Vec<Message>, outcomes: Vec<Outcome>) -> Result<(), Verdict> {
        self.tell(Mark::Calling(Call::Publish(messages)))?;
        Ok(self.tell(Mark::Answered(Answer::Outcomes(outcomes)))?)
    }

    /// Ends the process as a crash of the process does, without a power cut: what was written is there, synced or
    /// not. Opens the log again.
    pub(crate) async fn kill(self, stumbles: Option<u64>) -> Result<Self, Verdict> {
        let Self { disk, log, mut reference, producers, options, .. } = self;
        let disk = disk.kill();
        drop(producers);
        drop(log);
        if options.acknowledge == Acknowledge::Written {
            reference.keep_what_was_written();
        }
        Self::open_at_last(disk, reference, options, stumbles).await
    }

    pub(crate) async fn close(mut self) -> Result<(ModelDisk, Reference), Verdict> {
        self.log.close().await?;
        self.tell(Mark::Closed)?;
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

    /// What every log must be able to do, whatever happened to it before: take a message in every partition, know what
    /// it was given before, deliver to every group, and find everything again.
    pub(crate) async fn goes_on(mut self) -> Result<(ModelDisk, Reference), Verdict> {
        self.finish_interrupted().await?;
        let mut messages = self.old_messages();
        let mut topics: Vec<(TopicName, u32)> = self
            .reference
            .topics()
            .iter()
            .map(|(topic, promised)| (topic.clone(), promised.partitions.len() as u32))
            .collect();
        if topics.is_empty() {
            topics.push((TopicName::new("first")?, self.options.partitions));
        }
        messages.extend(topics.iter().flat_map(|(topic, partitions)| {
            (0..*partitions).map(|number| {
                let key = key_of(number, *partitions);
                Message::new(topic.clone(), "it goes on").with_key(key)
            })
        }));
        self.publish_all(messages).await?;
        self.producers_go_on().await?;
        let groups: Vec<_> = self.reference.groups().keys().cloned().collect();
        for (group, topic) in groups {
            self.consume(&group, &topic, |_| false).await?;
        }
        if self
            .reference
            .topics()
            .values()
            .any(|topic| topic.settings.compact || topic.settings.retention_bytes.is_some())
        {
            self.maintain().await?;
        }
        self.reopen().await?.close().await
    }

    pub(crate) async fn publish_all(&mut self, messages: Vec<Message>) -> Result<(), Verdict> {
        let outcomes = self.publish(messages).await?;
        match outcomes.iter().find(|outcome| !outcome.is_accepted()) {
            Some(outcome) => Err(format!("the log opens, and does not take a message: {outcome:?}").into()),
            None => Ok(()),
        }
    }

    /// Some of what the log was given before; given again, it must be found and not stored.
    fn old_messages(&self) -> Vec<Message> {
        let topics = self.reference.topics().values().filter(|topic| topic.settings.deduplicate);
        let partitions =
            topics.flat_map(|topic| &topic.partitions).filter(|partition| partition.end() > partition.start);
        let old = partitions.flat_map(|partition| {
            let kept = partition.end() - partition.start;
            [0, kept / 3, kept - 1].map(|at| partition.messages[(partition.start + at) as usize].clone())
        });
        old.collect()
    }

    /// Whoever had no answer asks again, and the second time it is done, once.
    pub(crate) async fn finish_interrupted(&mut self) -> Result<(), Verdict> {
        match self.interrupted.take() {
            Some(Call::Publish(messages)) => self.publish(messages).await.map(drop),
            Some(Call::Produce { producer, topic, partition, first, messages }) => {
                self.register(&producer).await?;
                self.produce(&producer, &topic, partition, first, messages).await.map(drop)
            }
            Some(Call::Maintain) | None => Ok(()),
            Some(call) => self.change(call).await,
        }
    }
}

async fn collect(
    topic: &TopicName,
    reader: &mut dyn TopicReader,
    partitions: &mut [FoundPartition],
) -> Result<(), Verdict> {
    loop {
        let stored = reader.read(1000).await?;
        if stored.is_empty() {
            return Ok(());
        }
        for stored in stored {
            let partition = &mut partitions[stored.position.partition as usize];
            let added = partition.add(stored.position.offset, stored.message?);
            added.map_err(|sentence| format!("{topic}/{}: {sentence}", stored.position.partition))?;
        }
    }
}

/// Some key that belongs to partition `number`.
pub(crate) fn key_of(number: u32, partitions: u32) -> Key {
    let keys = (0..).map(|n| Key::new(format!("probe-{n}")).expect("it is a key"));
    keys.into_iter().find(|key| key.partition(partitions) == number).expect("every partition has keys")
}
