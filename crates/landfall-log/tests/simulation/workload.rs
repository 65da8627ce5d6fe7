//! Generated work: what a program could do with a log, drawn from a seed.

use std::time::Duration;

use landfall_core::{Delivery, GroupName, Message, ProducerName, StartAt, TopicName};
use landfall_log::{Gaps, Options, TopicSettings};

use crate::disk::{Faults, Lie, ModelDisk};
use crate::journal::Entry;
use crate::marks::Call;
use crate::messages::{TOPICS, any_message, any_messages};
use crate::random::Random;
use crate::reference::Reference;
use crate::session::{Session, Verdict};
use crate::tree::Tree;

/// What happened to a disk, from the beginning.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) base: Tree,
    /// What was promised before the journal begins.
    pub(crate) before: Reference,
    pub(crate) journal: Vec<Entry>,
    pub(crate) options: Options,
}

/// Work that has ended, with the log closed.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) history: History,
    pub(crate) reference: Reference,
    /// The files as they are now.
    pub(crate) tree: Tree,
}

const GROUPS: [&str; 2] = ["stock", "mail"];
const PRODUCERS: [&str; 2] = ["relay", "import"];

pub(crate) fn options(random: &mut Random) -> Options {
    Options {
        partitions: 1 + random.below(2) as u32,
        segment_bytes: [1536, 2048, 4096][random.below(3)],
        preallocate_bytes: [1000, 2048, 1 << 20][random.below(3)],
        // Nobody else could close the gap.
        gaps: Gaps::Refuse,
        // Only when the work says so.
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

/// Draws actions from `seed` and does them, `steps` of them, on a disk that may tell lies.
pub(crate) async fn work(seed: u64, steps: usize, lie: Option<Lie>) -> Result<Finished, Verdict> {
    let mut random = Random::new(seed);
    let options = options(&mut random);
    work_with(random, options, steps, lie).await
}

pub(crate) async fn work_with(
    random: Random,
    options: Options,
    steps: usize,
    lie: Option<Lie>,
) -> Result<Finished, Verdict> {
    work_on(ModelDisk::new(Tree::default()).with_lie(lie), random, options, steps).await
}

/// The same on a disk that is empty.
pub(crate) async fn work_on(
    disk: ModelDisk,
    mut random: Random,
    options: Options,
    steps: usize,
) -> Result<Finished, Verdict> {
    let (base, before) = (disk.tree(), Reference::new(options));
    let stumbles = random.chance(20).then(|| random.below(12) as u64);
    let session = Session::open_at_last(disk, before.clone(), options, stumbles).await?;
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
    async fn act(mut self) -> Result<Self, Verdict> {
        match self.random.below(24) {
            0..3 => self.session.look().await?,
            3 => self.session = self.session.reopen().await?,
            4..7 => {
                let faults = self.faults();
                self.session.set_faults(faults);
                self.change_something().await?;
                let stumbles = self.random.chance(30).then(|| self.random.below(12) as u64);
                self.session = self.session.kill(stumbles).await?;
                if self.random.chance(50) {
                    self.session.finish_interrupted().await?;
                }
            }
            7..10 => self.consume().await?,
            _ => self.change_something().await?,
        }
        Ok(self)
    }

    /// The process dies, or the disk fails and the log stops.
    fn faults(&mut self) -> Faults {
        let after = Some(self.random.below(8) as u64);
        match self.random.below(5) {
            0 => Faults { fail_sync_after: after, ..Faults::default() },
            1 => Faults { fail_write_after: after, ..Faults::default() },
            _ => Faults { kill_after: after, ..Faults::default() },
        }
    }

    /// What may be interrupted at any point.
    async fn change_something(&mut self) -> Result<(), Verdict> {
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

    /// New ones, and sometimes old ones again.
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

    /// Any message that is still there.
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

    /// A topic that is there, if any is.
    fn known_topic(&mut self) -> Option<TopicName> {
        let topics: Vec<_> = self.session.reference.topics().keys().cloned().collect();
        topics.get(self.random.below(topics.len().max(1))).cloned()
    }

    fn partitions(&self, topic: &TopicName) -> u32 {
        self.session.reference.topics().get(topic).map_or(0, |topic| topic.partitions.len() as u32)
    }

    /// The next messages of a producer, all or some of what it sent before, or what must be refused.
    async fn produce(&mut self) -> Result<(), Verdict> {
        let name = ProducerName::new(PRODUCERS[self.random.below(PRODUCERS.len())])?;
        let Some(topic) = self.known_topic() else { return Ok(()) };
        if !self.session.producers.contains_key(&name) || self.random.chance(15) {
            self.session.register(&name).await?;
        }
        if self.random.chance(20) {
            return self.session.produce_in_vain(&name, &topic).await;
        }
        let partition = self.random.below(self.partitions(&topic) as usize) as u32;
        let next = self.session.next_number(&name, &topic, partition);
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

    async fn change_a_topic(&mut self) -> Result<(), Verdict> {
        let topic = TopicName::new(TOPICS[self.random.below(TOPICS.len())])?;
        let settings = settings(&mut self.random);
        let call = match self.session.reference.topics().get(&topic) {
            None => Call::Create(topic, 1 + self.random.below(3) as u32, settings),
            Some(found) if self.random.chance(30) && found.partitions.len() < 4 => {
                let partitions = found.partitions.len() + self.random.below(2);
                Call::Grow(topic, partitions as u32)
            }
            // Whether it knows its messages by their ids stays as it was: turned on later it knows only some.
            Some(found) => {
                let deduplicate = found.settings.deduplicate;
                Call::Configure(topic, TopicSettings { deduplicate, ..settings })
            }
        };
        self.session.change(call).await
    }

    async fn delete_a_topic(&mut self) -> Result<(), Verdict> {
        match self.known_topic() {
            Some(topic) => self.session.change(Call::Delete(topic)).await,
            None => Ok(()),
        }
    }

    async fn seek(&mut self) -> Result<(), Verdict> {
        let (group, Some(topic)) = (self.group()?, self.known_topic()) else { return Ok(()) };
        let to = match self.random.below(4) {
            0 => StartAt::Beginning,
            1..3 => StartAt::End,
            _ => StartAt::Offset(self.random.below(40) as u64),
        };
        self.session.seek(&group, &topic, to).await
    }

    async fn consume(&mut self) -> Result<(), Verdict> {
        let (group, Some(topic)) = (self.group()?, self.known_topic()) else { return Ok(()) };
        let limit = self.random.below(30) as u64;
        let done = self.session.reference.progress(&group, &topic);
        let finishes = |delivery: &Delivery| {
            let saved = done.saved.get(delivery.position.partition as usize);
            delivery.position.offset < saved.copied().unwrap_or_default() + limit
        };
        self.session.consume(&group, &topic, finishes).await
    }

    fn group(&mut self) -> Result<GroupName, Verdict> {
        Ok(GroupName::new(GROUPS[self.random.below(GROUPS.len())])?)
    }
}
