//! Generated messages.

use landfall_core::{Headers, Key, Kind, Message, MessageId, Timestamp, TopicName};

use crate::disk::ModelDisk;
use crate::random::Random;

pub(crate) const TOPICS: [&str; 3] = ["orders", "payments", "stock"];
/// The messages of all runs are from one afternoon.
const NOON: i64 = 1_794_744_000_000;

/// Mostly one or a few small messages, sometimes of several topics.
pub(crate) fn any_messages(random: &mut Random, disk: &ModelDisk) -> Vec<Message> {
    let count = if random.chance(50) { 1 } else { 1 + random.below(6) };
    // Mostly the same topic, so that it grows.
    let topic = if random.chance(70) { 0 } else { random.below(TOPICS.len()) };
    (0..count)
        .map(|_| {
            let other = random.chance(15);
            any_message(random, disk, TOPICS[if other { (topic + 1) % TOPICS.len() } else { topic }])
        })
        .collect()
}

pub(crate) fn any_message(random: &mut Random, disk: &ModelDisk, topic: &str) -> Message {
    let (high, low) = (random.next(), random.next());
    let id = format!(
        "{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    );
    let id: MessageId = id.parse().expect("a valid id");
    let payload = payload(random, disk);
    let topic = TopicName::new(topic).expect("a valid topic");
    let mut message = Message::new(topic, payload).with_id(id).with_kind(Kind::new("Moved").expect("a valid kind"));
    message.time = Timestamp::from_millis(NOON + random.below(1_000_000) as i64);
    if random.chance(70) {
        message.key = Some(Key::new(format!("k{}", random.below(4))).expect("a valid key"));
        message.sequence = random.chance(50).then(|| random.below(1000) as i64);
    }
    if random.chance(20) {
        let mut headers = Headers::default();
        headers.insert("x-trace", "0".repeat(random.below(40))).expect("a valid header");
        message.headers = headers;
    }
    message
}

/// Random payloads; some look like unwritten sectors or like a batch.
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
        // Larger than any segment: the log refuses it.
        _ => vec![7; 9000],
    }
}

/// A part of a segment on the disk.
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
