//! The outbox without order: what is claimed is nobody else's until it is settled, and free again if it is not.

use std::time::Duration;

use landfall_core::{
    CompetingQueue, Database, DeadLetterStatus, Decision, ErrorCode, ErrorKind, MessageId, OutboxEntry, OutboxQueue,
    OutboxView, OutboxWriter,
};

use super::stage::{LONG, SOON, settlement};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{ids, keyed, keyless, series, sorted};
use crate::eventually;

fn claimed_ids(entries: &[OutboxEntry]) -> Vec<MessageId> {
    entries.iter().map(|entry| entry.message_id).collect()
}

pub async fn two_claims_never_share_a_row<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().competing_relays {
        return;
    }
    let messages = [series("a", 3), series("b", 3)].concat();
    stage.enqueue(&messages).await;
    let second = stage.second().await;
    let mut one = stage.database.claim(4).await.unwrap();
    let mut two = second.claim(10).await.unwrap();
    let (first, rest) = (one.take_entries(), two.take_entries());
    assert_eq!((first.len(), rest.len()), (4, 2));
    assert_eq!(sorted([claimed_ids(&first), claimed_ids(&rest)].concat()), sorted(ids(&messages)));
    assert!(one.take_entries().is_empty(), "they are taken once");

    let published = |entries: &[OutboxEntry]| {
        entries.iter().map(|entry| settlement(entry, Decision::Published)).collect::<Vec<_>>()
    };
    one.settle(&published(&first)).await.unwrap();
    two.settle(&published(&rest)).await.unwrap();
    assert!(stage.database.claim(10).await.unwrap().take_entries().is_empty());
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (0, 6));
}

pub async fn what_a_claim_did_not_settle_is_free_again<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().competing_relays {
        return;
    }
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let mut dropped = stage.database.claim(10).await.unwrap();
    assert_eq!(dropped.take_entries().len(), 3);
    drop(dropped);

    let mut claim = None;
    eventually(SOON, "the rows are free again", async || {
        let mut again = stage.database.claim(10).await.unwrap();
        let entries = again.take_entries();
        // One that saw some of them only goes before the next comes.
        claim = (entries.len() == 3).then_some((again, entries));
        claim.is_some()
    })
    .await;
    let (claim, entries) = claim.unwrap();
    let middle = entries.iter().find(|entry| entry.message_id == messages[1].id).unwrap();
    claim.settle(&[settlement(middle, Decision::Published)]).await.unwrap();
    let left = stage.database.claim(10).await.unwrap().take_entries();
    assert_eq!(sorted(claimed_ids(&left)), sorted(vec![messages[0].id, messages[2].id]));
    assert!(left.iter().all(|entry| entry.attempts == 0));
}

pub async fn a_claimed_row_that_fails_waits_alone<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().competing_relays {
        return;
    }
    let messages = series("a", 3);
    stage.enqueue(&messages).await;
    let settle = async |message: MessageId, decision: Decision| {
        let mut claim = stage.database.claim(10).await.unwrap();
        let entries = claim.take_entries();
        let entry = entries.iter().find(|entry| entry.message_id == message).expect("it is due");
        claim.settle(&[settlement(entry, decision)]).await.unwrap();
        entry.attempts
    };
    settle(messages[0].id, Decision::Retry { after: LONG, error: "away".into() }).await;
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: false };
    settle(messages[1].id, park).await;

    // Its successor goes on, and the parked one is a dead letter that holds nobody.
    let due = stage.database.claim(10).await.unwrap().take_entries();
    assert_eq!(claimed_ids(&due), [messages[2].id]);
    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked), (1, 1, 1));
    assert_eq!(stage.letter(&messages[1]).await.status, DeadLetterStatus::Parked);

    // Redriven, it comes again.
    stage.redrive(&messages[1]).await;
    settle(messages[1].id, Decision::Retry { after: Duration::ZERO, error: "away".into() }).await;
    eventually(SOON, "it is due again", async || {
        let due = stage.database.claim(10).await.unwrap().take_entries();
        due.iter().any(|entry| entry.message_id == messages[1].id && entry.attempts == 1)
    })
    .await;
}

pub async fn what_competing_relays_left_is_read_in_order_by_the_others<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().competing_relays {
        return;
    }
    let messages = [series("a", 4), vec![keyless()]].concat();
    stage.enqueue(&messages).await;
    let mut claim = stage.database.claim(10).await.unwrap();
    let entries = claim.take_entries();
    let first = entries.iter().find(|entry| entry.message_id == messages[0].id).unwrap();
    claim.settle(&[settlement(first, Decision::Published)]).await.unwrap();

    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let of_key: Vec<_> = claimed_ids(&due).into_iter().filter(|id| *id != messages[4].id).collect();
    assert_eq!(of_key, ids(&messages[1..4]));
    let settlements: Vec<_> = due[..2].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(stage.database.settle(&leases, &settlements).await.unwrap().len(), 2);
    // And back again.
    let left = stage.database.claim(10).await.unwrap().take_entries();
    assert_eq!(sorted(claimed_ids(&left)), sorted(claimed_ids(&due[2..])));
}

pub async fn a_late_commit_is_claimed_late<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().competing_relays {
        return;
    }
    let (late, early) = (keyed("a", 1), keyed("b", 1));
    let mut open = stage.database.begin().await.unwrap();
    stage.database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
    stage.enqueue(std::slice::from_ref(&early)).await;
    let mut claim = stage.database.claim(10).await.unwrap();
    let entries = claim.take_entries();
    assert_eq!(claimed_ids(&entries), [early.id]);
    claim.settle(&[settlement(&entries[0], Decision::Published)]).await.unwrap();
    stage.database.commit(open).await.unwrap();
    assert_eq!(claimed_ids(&stage.database.claim(10).await.unwrap().take_entries()), [late.id]);
}

pub async fn without_the_capability_claiming_is_refused<F: DatabaseFixture>(stage: Stage<F>) {
    if F::capabilities().competing_relays {
        return;
    }
    let refused = stage.database.claim(10).await.err().expect("it cannot be done");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
