//! A log on a model disk, with one caller that waits for each result and checks it against the reference.
//!
//! All functions return a [`Failure`] that says which promise was violated.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Broker, Error, Key, Message, Outcome, ProducerName, Publisher, StartAt, TopicName, TopicReader};
use landfall_log::{Acknowledge, Log, Options, Producer};

use crate::content::{Content, FoundPartition, FoundTopic};
use crate::disk::{Faults, ModelDisk};
use crate::events::{Call, CallResult, Event};
use crate::reference::Reference;

pub(crate) const FOLDER: &str = "/log";

/// A limit for every call, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) disk: ModelDisk,
    pub(crate) log: Log,
    pub(crate) reference: Reference,
    /// The call that was interrupted when the previous process ended.
    pub(crate) interrupted: Option<Call>,
    /// All instances of each producer registered in this session, the newest last.
    pub(crate) producers: BTreeMap<ProducerName, Vec<Producer>>,
    options: Options,
}

/// Why a session failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The log reports that stored bytes are damaged or written by a newer build.
    Refused(Error),
    /// A promise was violated.
    Violation(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Violation(why)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => format!("the log refuses its own files: {error}"),
            Failure::Violation(why) => why,
        }
    }
}

impl Session {
    /// Opens the log on `disk`, reads all of it and compares it with `reference`. From then on the content that was
    /// read is a promise.
    pub(crate) async fn open(disk: ModelDisk, reference: Reference, options: Options) -> Result<Self, Failure> {
        let log = Log::open_on(Arc::new(disk.clone()), Path::new(FOLDER), options)?;
        let (interrupted, producers) = (reference.call().cloned(), BTreeMap::new());
        let mut session = Self { disk, log, reference, interrupted, producers, options };
        let found = session.content().await?;
        session.reference.compare(&found)?;
        session.record(Event::Seen(found))?;
        Ok(session)
    }

    /// The same. If `kill_after` is given, a process that opens the log is first killed after that many changes.
    pub(crate) async fn open_after_kill(
        disk: ModelDisk,
        reference: Reference,
        options: Options,
        kill_after: Option<u64>,
    ) -> Result<Self, Failure> {
        if kill_after.is_none() {
            return Self::open(disk, reference, options).await;
        }
        disk.set_faults(Faults { kill_after, ..Faults::default() });
        let opened = Log::open_on(Arc::new(disk.clone()), Path::new(FOLDER), options);
        if !disk.is_dead() {
            opened?;
        }
        Self::open(disk.kill(), reference, options).await
    }

    /// Everything that can be read from the log, by position.
    pub(crate) async fn content(&self) -> Result<Content, Failure> {
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
            if let Err(failure) = outcome {
                // Messages served before the error must be correct nevertheless.
                self.check_served(&content)?;
                return Err(failure);
            }
        }
        Ok(content)
    }

    /// Checks messages that were read before an error.
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

    /// Reads the content of the open log and compares it; all of it is durable.
    pub(crate) async fn read_and_compare(&mut self) -> Result<(), Failure> {
        let found = self.content().await?;
        self.reference.compare(&found)?;
        Ok(self.record(Event::Read(found))?)
    }

    pub(crate) fn record(&mut self, event: Event) -> Result<(), String> {
        self.disk.record(event.clone());
        self.reference.apply(&event, None)
    }

    pub(crate) async fn publish(&mut self, messages: Vec<Message>) -> Result<Vec<Outcome>, Failure> {
        self.record(Event::CallStarted(Call::Publish(messages.clone())))?;
        let result = tokio::time::timeout(SOON, self.log.publish(&messages)).await;
        let outcomes = result.map_err(|_| "a publish call never returned".to_owned())?;
        self.record(Event::CallReturned(CallResult::Outcomes(outcomes.clone())))?;
        Ok(outcomes)
    }

    /// Records a call that was made on the log directly.
    pub(crate) fn adopt(&mut self, messages: Vec<Message>, outcomes: Vec<Outcome>) -> Result<(), Failure> {
        self.record(Event::CallStarted(Call::Publish(messages)))?;
        Ok(self.record(Event::CallReturned(CallResult::Outcomes(outcomes)))?)
    }

    /// Kills the process without a power cut: everything written is there, synced or not. Then opens the log again.
    pub(crate) async fn kill(self, kill_after: Option<u64>) -> Result<Self, Failure> {
        let Self { disk, log, mut reference, producers, options, .. } = self;
        let disk = disk.kill();
        drop(producers);
        drop(log);
        if options.acknowledge == Acknowledge::Written {
            reference.keep_written();
        }
        Self::open_after_kill(disk, reference, options, kill_after).await
    }

    pub(crate) async fn close(mut self) -> Result<(ModelDisk, Reference), Failure> {
        self.log.close().await?;
        self.record(Event::Closed)?;
        Ok((self.disk, self.reference))
    }

    pub(crate) async fn reopen(self) -> Result<Self, Failure> {
        let options = self.options;
        let (disk, reference) = self.close().await?;
        Self::open(disk, reference, options).await
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.disk.set_faults(faults);
    }

    /// Checks what every log must be able to do after any fault. It accepts a message in every partition, detects
    /// duplicates, delivers to every group, and finds everything again after a restart.
    pub(crate) async fn check_usable(mut self) -> Result<(ModelDisk, Reference), Failure> {
        self.retry_interrupted().await?;
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
                let key = key_for(number, *partitions);
                Message::new(topic.clone(), "after recovery").with_key(key)
            })
        }));
        self.publish_all(messages).await?;
        self.resume_producers().await?;
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

    pub(crate) async fn publish_all(&mut self, messages: Vec<Message>) -> Result<(), Failure> {
        let outcomes = self.publish(messages).await?;
        match outcomes.iter().find(|outcome| !outcome.is_accepted()) {
            Some(outcome) => Err(format!("the log opens but does not accept a message: {outcome:?}").into()),
            None => Ok(()),
        }
    }

    /// Some of the stored messages. Published again, they must be detected as duplicates.
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

    /// Repeats the interrupted call. Its effect must happen exactly once.
    pub(crate) async fn retry_interrupted(&mut self) -> Result<(), Failure> {
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
) -> Result<(), Failure> {
    loop {
        let stored = reader.read(1000).await?;
        if stored.is_empty() {
            return Ok(());
        }
        for stored in stored {
            let partition = &mut partitions[stored.position.partition as usize];
            let added = partition.add(stored.position.offset, stored.message?);
            added.map_err(|why| format!("{topic}/{}: {why}", stored.position.partition))?;
        }
    }
}

/// A key that belongs to partition `number`.
pub(crate) fn key_for(number: u32, partitions: u32) -> Key {
    let keys = (0..).map(|n| Key::new(format!("probe-{n}")).expect("a valid key"));
    keys.into_iter().find(|key| key.partition(partitions) == number).expect("every partition has keys")
}
