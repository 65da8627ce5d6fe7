//! The unordered outbox: a claimed row belongs to one relay until it is settled, and is released otherwise.

use std::time::Duration;

use landfall_core::adapter::{Decision, OutboxEntry};
use landfall_core::{
    CompetingQueue, Database, DeadLetterStatus, ErrorCode, ErrorKind, MessageId, OutboxQueue, OutboxView, OutboxWriter,
};

use super::harness::{LONG, TIMEOUT, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted};
use crate::eventually;

fn claimed_ids(entries: &[OutboxEntry]) -> Vec<MessageId> {
    entries.iter().map(|entry| entry.message_id).collect()
}

pub async fn concurrent_claims_never_share_a_row<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = [series("a", 3), series("b", 3)].concat();
    harness.enqueue(&messages).await;
    let second = harness.second().await;
    let mut one = harness.database.claim(4).await.unwrap();
    let mut two = second.claim(10).await.unwrap();
    let (first, rest) = (one.take_entries(), two.take_entries());
    assert_eq!((first.len(), rest.len()), (4, 2));
    assert_eq!(sorted([claimed_ids(&first), claimed_ids(&rest)].concat()), sorted(ids(&messages)));
    assert!(one.take_entries().is_empty(), "entries were returned twice");

    let published = |entries: &[OutboxEntry]| {
        entries.iter().map(|entry| settlement(entry, Decision::Published)).collect::<Vec<_>>()
    };
    one.settle(&published(&first)).await.unwrap();
    two.settle(&published(&rest)).await.unwrap();
    assert!(harness.database.claim(10).await.unwrap().take_entries().is_empty());
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (0, 6));
}

pub async fn unsettled_rows_of_a_claim_are_released<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let mut dropped = harness.database.claim(10).await.unwrap();
    assert_eq!(dropped.take_entries().len(), 3);
    drop(dropped);

    let mut claim = None;
    eventually(TIMEOUT, "the rows are released", async || {
        let mut again = harness.database.claim(10).await.unwrap();
        let entries = again.take_entries();
        // A claim that got only some of the rows is dropped before the next one.
        claim = (entries.len() == 3).then_some((again, entries));
        claim.is_some()
    })
    .await;
    let (claim, entries) = claim.unwrap();
    let middle = entries.iter().find(|entry| entry.message_id == messages[1].id).unwrap();
    claim.settle(&[settlement(middle, Decision::Published)]).await.unwrap();
    let left = harness.database.claim(10).await.unwrap().take_entries();
    assert_eq!(sorted(claimed_ids(&left)), sorted(vec![messages[0].id, messages[2].id]));
    assert!(left.iter().all(|entry| entry.attempts == 0));
}

pub async fn failed_claimed_row_blocks_no_other_row<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages).await;
    let settle = async |message: MessageId, decision: Decision| {
        let mut claim = harness.database.claim(10).await.unwrap();
        let entries = claim.take_entries();
        let entry = entries.iter().find(|entry| entry.message_id == message).expect("the message is not due");
        claim.settle(&[settlement(entry, decision)]).await.unwrap();
        entry.attempts
    };
    settle(messages[0].id, Decision::Retry { after: LONG, error: "away".into() }).await;
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: false };
    settle(messages[1].id, park).await;

    // The successor is still due, and the parked message holds no key.
    let due = harness.database.claim(10).await.unwrap().take_entries();
    assert_eq!(claimed_ids(&due), [messages[2].id]);
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked), (1, 1, 1));
    assert_eq!(harness.letter(&messages[1]).await.status, DeadLetterStatus::Parked);

    // After a redrive the parked message is due again.
    harness.redrive(&messages[1]).await;
    settle(messages[1].id, Decision::Retry { after: Duration::ZERO, error: "away".into() }).await;
    eventually(TIMEOUT, "the message is due again", async || {
        let due = harness.database.claim(10).await.unwrap().take_entries();
        due.iter().any(|entry| entry.message_id == messages[1].id && entry.attempts == 1)
    })
    .await;
}

pub async fn ordered_relay_reads_rows_left_by_competing_relays<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = [series("a", 4), vec![keyless()]].concat();
    harness.enqueue(&messages).await;
    let mut claim = harness.database.claim(10).await.unwrap();
    let entries = claim.take_entries();
    let first = entries.iter().find(|entry| entry.message_id == messages[0].id).unwrap();
    claim.settle(&[settlement(first, Decision::Published)]).await.unwrap();

    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let of_key: Vec<_> = claimed_ids(&due).into_iter().filter(|id| *id != messages[4].id).collect();
    assert_eq!(of_key, ids(&messages[1..4]));
    let settlements: Vec<_> = due[..2].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(harness.database.settle(&leases, &settlements).await.unwrap().len(), 2);
    // The rest can be claimed again.
    let left = harness.database.claim(10).await.unwrap().take_entries();
    assert_eq!(sorted(claimed_ids(&left)), sorted(claimed_ids(&due[2..])));
}

pub async fn late_commit_can_be_claimed<F: DatabaseFixture>(harness: Harness<F>) {
    let (late, early) = (keyed("a", 1), keyed("b", 1));
    let mut open = harness.database.begin().await.unwrap();
    harness.database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
    harness.enqueue(std::slice::from_ref(&early)).await;
    let mut claim = harness.database.claim(10).await.unwrap();
    let entries = claim.take_entries();
    assert_eq!(claimed_ids(&entries), [early.id]);
    claim.settle(&[settlement(&entries[0], Decision::Published)]).await.unwrap();
    harness.database.commit(open).await.unwrap();
    assert_eq!(claimed_ids(&harness.database.claim(10).await.unwrap().take_entries()), [late.id]);
}

pub async fn claim_is_refused_without_the_capability<F: DatabaseFixture>(harness: Harness<F>) {
    let refused = harness.database.claim(10).await.err().map(|error| error.kind());
    assert_eq!(refused, (!F::capabilities().competing_relays).then_some(ErrorKind::Unsupported));
}
