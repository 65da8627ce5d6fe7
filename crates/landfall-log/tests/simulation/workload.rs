//! Generated work: what a program could do with a log, drawn from a seed.

use landfall_core::{GroupName, Headers, Key, Kind, Message, MessageId, Timestamp, TopicName};
use landfall_log::Options;

use crate::disk::{Faults, Lie, ModelDisk};
use crate::journal::Entry;
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

const TOPICS: [&str; 2] = ["orders", "payments"];
const GROUPS: [&str; 2] = ["stock", "mail"];
/// The messages of all runs are of one afternoon.
const NOON: i64 = 1_794_744_000_000;

pub(crate) fn options(random: &mut Random) -> Options {
    Options {
        partitions: 1 + random.below(2) as u32,
        segment_bytes: [4096, 6000, 8192][random.below(3)],
        preallocate_bytes: [1000, 2048, 1 << 20][random.below(3)],
        ..Options::default()
    }
}

/// Draws actions from `seed` and does them, `steps` of them, on a disk that may tell lies.
pub(crate) async fn work(seed: u64, steps: usize, lie: Option<Lie>) -> Result<Finished, Verdict> {
    let mut random = Random::new(seed);
    let options = options(&mut random);
    let base = Tree::default();
    let disk = ModelDisk::new(base.clone()).with_lie(lie);
    let mut worker = Worker { random, session: Session::open(disk, Reference::default(), options).await? };
    for _ in 0..steps {
        worker = worker.act().await?;
    }
    let (disk, reference) = worker.session.close().await?;
    let history = History { base, before: Reference::default(), journal: disk.take_journal(), options };
    Ok(Finished { history, reference, tree: disk.tree() })
}

struct Worker {
    random: Random,
    session: Session,
}

impl Worker {
    async fn act(mut self) -> Result<Self, Verdict> {
        match self.random.below(20) {
            0..14 => {
                let messages = any_messages(&mut self.random, &self.session.disk);
                self.session.publish(messages).await?;
            }
            14..17 => self.consume().await?,
            17 => self.session = self.session.reopen().await?,
            _ => {
                let kill_after = Some(self.random.below(8) as u64);
                self.session.set_faults(Faults { kill_after, ..Faults::default() });
                let messages = any_messages(&mut self.random, &self.session.disk);
                self.session.publish(messages).await?;
                self.session = self.session.kill().await?;
            }
        }
        Ok(self)
    }

    async fn consume(&mut self) -> Result<(), Verdict> {
        let group = GroupName::new(GROUPS[self.random.below(GROUPS.len())])?;
        let topic = TopicName::new(TOPICS[self.random.below(TOPICS.len())])?;
        let limit = self.random.below(30) as u64;
        let done = self.session.reference.groups().get(&(group.clone(), topic.clone())).cloned().unwrap_or_default();
        let finishes = move |partition: usize, offset: u64| {
            offset < done.saved.get(partition).copied().unwrap_or_default() + limit
        };
        let finishes = |delivery: &landfall_core::Delivery| {
            finishes(delivery.position.partition as usize, delivery.position.offset)
        };
        self.session.consume(&group, &topic, finishes).await
    }
}

/// Mostly one or a few small messages, sometimes of several topics.
pub(crate) fn any_messages(random: &mut Random, disk: &ModelDisk) -> Vec<Message> {
    let count = if random.chance(50) { 1 } else { 1 + random.below(6) };
    let topic = random.below(TOPICS.len());
    (0..count)
        .map(|_| {
            let other = random.chance(15);
            message(random, disk, TOPICS[if other { (topic + 1) % TOPICS.len() } else { topic }])
        })
        .collect()
}

fn message(random: &mut Random, disk: &ModelDisk, topic: &str) -> Message {
    let (high, low) = (random.next(), random.next());
    let id = format!(
        "{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    );
    let id: MessageId = id.parse().expect("it is an id");
    let payload = payload(random, disk);
    let topic = TopicName::new(topic).expect("it is a topic");
    let mut message = Message::new(topic, payload).with_id(id).with_kind(Kind::new("Moved").expect("it is a kind"));
    message.time = Timestamp::from_millis(NOON + random.below(1_000_000) as i64);
    if random.chance(70) {
        message.key = Some(Key::new(format!("k{}", random.below(9))).expect("it is a key"));
        message.sequence = random.chance(50).then(|| random.below(1000) as i64);
    }
    if random.chance(20) {
        let mut headers = Headers::default();
        headers.insert("x-trace", "0".repeat(random.below(40))).expect("it is a header");
        message.headers = headers;
    }
    message
}

/// Also such as could be taken for something else: sectors that were never written, or a batch.
fn payload(random: &mut Random, disk: &ModelDisk) -> Vec<u8> {
    match random.below(20) {
        0..13 => {
            let length = random.below(60);
            random.bytes(length)
        }
        13..15 => vec![0; 300 + random.below(1500)],
        15..17 => {
            let length = 300 + random.below(1200);
            random.bytes(length)
        }
        17 => {
            let mut bytes = vec![0xee; 200 + random.below(900)];
            bytes.extend(vec![0; random.below(900)]);
            bytes
        }
        18 => stored_bytes(random, disk),
        // Larger than any segment: refused, and nothing of it is stored.
        _ => vec![7; 9000],
    }
}

/// A part of a segment as it stands on the disk.
fn stored_bytes(random: &mut Random, disk: &ModelDisk) -> Vec<u8> {
    let tree = disk.tree();
    let segments: Vec<_> = tree.files().into_iter().filter(|(path, _)| path.ends_with(".segment")).collect();
    if segments.is_empty() {
        return Vec::new();
    }
    let (_, node) = &segments[random.below(segments.len())];
    let Ok(bytes) = tree.file(*node) else { return Vec::new() };
    let start = random.below(bytes.len().max(1));
    bytes[start..bytes.len().min(start + 1500)].to_vec()
}
