//! Generated work: random calls that a program could make on a log.

use std::time::Duration;

use landfall_core::adapter::Delivery;
use landfall_core::{GroupName, Message, ProducerName, StartAt, TopicName};
use landfall_log::{Gaps, Options, TopicSettings};

use crate::disk::{DiskBug, Faults, ModelDisk};
use crate::events::Call;
use crate::journal::Entry;
use crate::messages::{TOPICS, any_message, any_messages};
use crate::random::Random;
use crate::reference::Reference;
use crate::session::{Failure, Session};
use crate::tree::Tree;

/// The history of a disk from its beginning.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) base: Tree,
    /// The promises before the journal starts.
    pub(crate) before: Reference,
    pub(crate) journal: Vec<Entry>,
    pub(crate) options: Options,
}

/// Finished work, with the log closed.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) history: History,
    pub(crate) reference: Reference,
    /// The final content of the disk.
    pub(crate) tree: Tree,
}

const GROUPS: [&str; 2] = ["stock", "mail"];
const PRODUCERS: [&str; 2] = ["relay", "import"];

pub(crate) fn options(random: &mut Random) -> Options {
    Options {
        partitions: 1 + random.below(2) as u32,
        segment_bytes: [1536, 2048, 4096][random.below(3)],
        preallocate_bytes: [1000, 2048, 1 << 20][random.below(3)],
        // There is only one caller, so a held batch would wait for its predecessor forever.
        gaps: Gaps::Refuse,
        // Maintenance only runs when the work calls it.
        maintenance: Duration::from_secs(24 * 3600),
        topic: settings(random),
        ..Options::default()
    }
}

fn settings(random: &mut Random) -> TopicSettings {
    TopicSettings {
        retention_time: None,
        retention_bytes: random.chance(40).then(|| 1000 + random.below(6000) as u64),
        may_drop_unread: random.chance(40),
        compact: random.chance(50),
        deduplicate: random.chance(90),
    }
}

/// Makes `steps` random calls drawn from `seed`, on a disk that may have a planted bug.
pub(crate) async fn work(seed: u64, steps: usize, bug: Option<DiskBug>) -> Result<Finished, Failure> {
    let mut random = Random::new(seed);
    let options = options(&mut random);
    work_with(random, options, steps, bug).await
}

pub(crate) async fn work_with(
    random: Random,
    options: Options,
    steps: usize,
    bug: Option<DiskBug>,
) -> Result<Finished, Failure> {
    work_on(ModelDisk::new(Tree::default()).with_bug(bug), random, options, steps).await
}

/// The same on a given empty disk.
pub(crate) async fn work_on(
    disk: ModelDisk,
    mut random: Random,
    options: Options,
    steps: usize,
) -> Result<Finished, Failure> {
    let (base, before) = (disk.tree(), Reference::new(options));
    let kill_after = random.chance(20).then(|| random.below(12) as u64);
    let session = Session::open_after_kill(disk, before.clone(), options, kill_after).await?;
    let mut worker = Worker { random, session };
    for _ in 0..steps {
        worker = worker.act().await?;
    }
    let (disk, reference) = worker.session.close().await?;
    let history = History { base, before, journal: disk.take_journal(), options };
    Ok(Finished { history, reference, tree: disk.tree() })
}

struct Worker {
    random: Random,
    session: Session,
}

impl Worker {
    async fn act(mut self) -> Result<Self, Failure> {
        match self.random.below(24) {
            0..3 => self.session.read_and_compare().await?,
            3 => self.session = self.session.reopen().await?,
            4..7 => {
                let faults = self.faults();
                self.session.set_faults(faults);
                self.change_something().await?;
                let kill_after = self.random.chance(30).then(|| self.random.below(12) as u64);
                self.session = self.session.kill(kill_after).await?;
                if self.random.chance(50) {
                    self.session.retry_interrupted().await?;
                }
            }
            7..10 => self.consume().await?,
            _ => self.change_something().await?,
        }
        Ok(self)
    }

    /// A kill of the process, or a disk error that stops the log.
    fn faults(&mut self) -> Faults {
        let after = Some(self.random.below(8) as u64);
        match self.random.below(5) {
            0 => Faults { fail_sync_after: after, ..Faults::default() },
            1 => Faults { fail_write_after: after, ..Faults::default() },
            _ => Faults { kill_after: after, ..Faults::default() },
        }
    }

    /// A change that may be interrupted at any point.
    async fn change_something(&mut self) -> Result<(), Failure> {
        match self.random.below(24) {
            0..13 => {
                let messages = self.messages();
                self.session.publish(messages).await.map(drop)
            }
            13..18 => self.produce().await,
            18..20 => self.change_a_topic().await,
            20 => self.seek().await,
            21..23 => self.session.maintain().await,
            _ => self.delete_a_topic().await,
        }
    }

    /// New messages, and sometimes duplicates.
    fn messages(&mut self) -> Vec<Message> {
        let mut messages = any_messages(&mut self.random, &self.session.disk);
        if self.random.chance(40) {
            for _ in 0..1 + self.random.below(3) {
                let again = self.stored_message().unwrap_or_else(|| messages[0].clone());
                messages.insert(self.random.below(messages.len() + 1), again);
            }
        }
        messages
    }

    /// A random message that is still stored.
    fn stored_message(&mut self) -> Option<Message> {
        let topics = self.session.reference.topics().values();
        let partitions =
            topics.flat_map(|topic| &topic.partitions).filter(|partition| partition.end() > partition.start);
        let partitions: Vec<_> = partitions.collect();
        let partition = partitions.get(self.random.below(partitions.len().max(1)))?;
        let kept = partition.end() - partition.start;
        let at = partition.start as usize + self.random.below(kept as usize);
        partition.messages.get(at).cloned()
    }

    /// An existing topic, if any.
    fn known_topic(&mut self) -> Option<TopicName> {
        let topics: Vec<_> = self.session.reference.topics().keys().cloned().collect();
        topics.get(self.random.below(topics.len().max(1))).cloned()
    }

    fn partitions(&self, topic: &TopicName) -> u32 {
        self.session.reference.topics().get(topic).map_or(0, |topic| topic.partitions.len() as u32)
    }

    /// The next messages of a producer, duplicates of previous ones, or messages that must be refused.
    async fn produce(&mut self) -> Result<(), Failure> {
        let name = ProducerName::new(PRODUCERS[self.random.below(PRODUCERS.len())])?;
        let Some(topic) = self.known_topic() else { return Ok(()) };
        if !self.session.producers.contains_key(&name) || self.random.chance(15) {
            self.session.register(&name).await?;
        }
        if self.random.chance(20) {
            return self.session.produce_refused(&name, &topic).await;
        }
        let partition = self.random.below(self.partitions(&topic) as usize) as u32;
        let next = self.session.next_sequence(&name, &topic, partition);
        let first = if self.random.chance(50) { next } else { self.random.below(next as usize + 1) as u64 };
        let mut messages = self.session.sent(&name, &topic, partition, first);
        messages.truncate(self.random.below(6));
        if first + messages.len() as u64 == next {
            for _ in 0..1 + self.random.below(3) {
                let mut message = any_message(&mut self.random, &self.session.disk, topic.as_str());
                message.key = message.key.filter(|key| key.partition(self.partitions(&topic)) == partition);
                messages.push(message);
            }
        }
        self.session.produce(&name, &topic, partition, first, messages).await.map(drop)
    }

    async fn change_a_topic(&mut self) -> Result<(), Failure> {
        let topic = TopicName::new(TOPICS[self.random.below(TOPICS.len())])?;
        let settings = settings(&mut self.random);
        let call = match self.session.reference.topics().get(&topic) {
            None => Call::Create(topic, 1 + self.random.below(3) as u32, settings),
            Some(found) if self.random.chance(30) && found.partitions.len() < 4 => {
                let partitions = found.partitions.len() + self.random.below(2);
                Call::Grow(topic, partitions as u32)
            }
            // Deduplication stays as it was: enabled later, it would cover only some messages.
            Some(found) => {
                let deduplicate = found.settings.deduplicate;
                Call::Configure(topic, TopicSettings { deduplicate, ..settings })
            }
        };
        self.session.change(call).await
    }

    async fn delete_a_topic(&mut self) -> Result<(), Failure> {
        match self.known_topic() {
            Some(topic) => self.session.change(Call::Delete(topic)).await,
            None => Ok(()),
        }
    }

    async fn seek(&mut self) -> Result<(), Failure> {
        let (group, Some(topic)) = (self.group()?, self.known_topic()) else { return Ok(()) };
        let to = match self.random.below(4) {
            0 => StartAt::Beginning,
            1..3 => StartAt::End,
            _ => StartAt::Offset(self.random.below(40) as u64),
        };
        self.session.seek(&group, &topic, to).await
    }

    async fn consume(&mut self) -> Result<(), Failure> {
        let (group, Some(topic)) = (self.group()?, self.known_topic()) else { return Ok(()) };
        let limit = self.random.below(30) as u64;
        let done = self.session.reference.progress(&group, &topic);
        let finishes = |delivery: &Delivery| {
            let saved = done.saved.get(delivery.position.partition as usize);
            delivery.position.offset < saved.copied().unwrap_or_default() + limit
        };
        self.session.consume(&group, &topic, finishes).await
    }

    fn group(&mut self) -> Result<GroupName, Failure> {
        Ok(GroupName::new(GROUPS[self.random.below(GROUPS.len())])?)
    }
}
