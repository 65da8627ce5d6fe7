//! Steps of a relay that tests of the database adapters share.

#![allow(clippy::unwrap_used, reason = "a step of a test fails by panicking")]

use std::time::Duration;

use landfall_core::adapter::{Decision, Lease, OutboxEntry, Settlement, Shard};
use landfall_core::{Holder, Key, Leases, Message, MessageId, OutboxQueue, TopicName};

/// Longer than any test runs.
pub const LONG: Duration = Duration::from_secs(3600);
/// How long a test waits for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(60);

/// Returns message number `sequence` of `key` on the topic `orders`.
pub fn message(key: &str, sequence: i64) -> Message {
    Message::new(TopicName::new("orders").unwrap(), format!("{key}/{sequence}"))
        .with_key(Key::new(key).unwrap())
        .with_sequence(sequence)
}

/// Acquires the leases of all shards.
pub async fn lease_all<D: OutboxQueue + Leases>(database: &D, holder: &str, ttl: Duration) -> Vec<Lease> {
    let mut leases = Vec::new();
    for shard in 0..database.shards() {
        let name = Shard(shard).lease_name();
        leases.extend(database.acquire(&name, &Holder(holder.into()), ttl).await.unwrap());
    }
    assert_eq!(leases.len(), usize::from(database.shards()));
    leases
}

/// Returns the ids of the messages that are due.
pub async fn due<D: OutboxQueue>(database: &D, leases: &[Lease]) -> Vec<MessageId> {
    database.next(leases, 1000).await.unwrap().iter().map(|entry| entry.message_id).collect()
}

pub fn settlement(entry: &OutboxEntry, decision: Decision) -> Settlement {
    Settlement { row: entry.row, shard: entry.shard, decision }
}

/// Settles the messages that are due as published, and returns their ids.
pub async fn publish_everything<D: OutboxQueue>(database: &D, leases: &[Lease]) -> Vec<MessageId> {
    let entries = database.next(leases, 1000).await.unwrap();
    let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(database.settle(leases, &settlements).await.unwrap().len(), entries.len());
    entries.iter().map(|entry| entry.message_id).collect()
}
