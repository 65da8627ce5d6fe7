//! Half messages: the first verdict is final, in every order and however often it arrives.

use std::time::Duration;

use landfall_core::{Decided, HalfMessages, HalfState, HalfVerdict, MessageId, OutboxQueue, OutboxView, Prepared};

use super::half_steps::{COMMIT, FIRST, ROLLBACK, half};
use super::harness::TIMEOUT;
use super::{AuditRow, DatabaseFixture, Harness};
use crate::conformance::sample::{keyed, series};

fn audit_row(actor: &str, action: &str, id: MessageId) -> AuditRow {
    AuditRow { actor: actor.into(), action: action.into(), message_id: id }
}

pub async fn commit_enqueues_the_message_once<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    harness.prepare(&half).await;
    assert_eq!(harness.decide(&half, COMMIT).await, Decided::Now);
    assert_eq!(harness.decide(&half, COMMIT).await, Decided::Before);
    assert_eq!(harness.database.decide(half.message.id, COMMIT, "alice").await.unwrap(), Decided::Before);
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due_ids(&leases).await, [half.message.id]);
    let row = harness.half_row(&half).await;
    assert_eq!((row.state, row.decided_by.as_deref()), (HalfState::Committed, Some("sender")));
    assert!(row.decided_at.is_some() && row.next_check.is_none());
    assert_eq!(harness.audit().await, [audit_row("sender", "half-commit", half.message.id)]);
}

pub async fn commit_wakes_the_relay<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    harness.prepare(&half).await;
    let relay = harness.database.clone();
    // A wake-up of the preparation, if there was one.
    relay.wait(Duration::from_millis(1)).await;
    let waiting = tokio::spawn(async move { tokio::time::timeout(TIMEOUT, relay.wait(TIMEOUT * 2)).await });
    harness.decide(&half, COMMIT).await;
    waiting.await.unwrap().expect("the commit did not wake the relay");
}

pub async fn rolled_back_message_is_never_published<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    harness.prepare(&half).await;
    assert_eq!(harness.decide(&half, ROLLBACK).await, Decided::Now);
    assert_eq!(harness.decide(&half, ROLLBACK).await, Decided::Before);
    assert_eq!(harness.database.stats().await.unwrap().pending, 0);
    assert_eq!(harness.half_row(&half).await.state, HalfState::RolledBack);
    assert_eq!(harness.audit().await, [audit_row("sender", "half-rollback", half.message.id)]);
}

pub async fn rollback_after_commit_is_recorded_and_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    contradiction(harness, COMMIT, ROLLBACK, 1).await;
}

pub async fn commit_after_rollback_is_recorded_and_changes_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    contradiction(harness, ROLLBACK, COMMIT, 0).await;
}

async fn contradiction<F: DatabaseFixture>(harness: Harness<F>, first: HalfVerdict, then: HalfVerdict, pending: u64) {
    let half = half(keyed("a", 1));
    let id = half.message.id;
    harness.prepare(&half).await;
    harness.decide(&half, first).await;
    assert!(!harness.database.acknowledge_contradiction(id, "alice").await.unwrap());
    for _ in 0..2 {
        let contradicted = harness.database.decide(id, then, "bob").await.unwrap();
        assert_eq!(contradicted, Decided::Contradiction(first));
    }
    let row = harness.half_row(&half).await;
    assert_eq!((row.state, row.decided_by.as_deref()), (first.state(), Some("sender")));
    assert_eq!(row.contradicted_by.as_deref(), Some("bob"));
    assert!(row.contradicted_at.is_some() && row.acknowledged_at.is_none());
    assert_eq!(harness.database.stats().await.unwrap().pending, pending);
    assert_eq!(harness.database.half_message_stats().await.unwrap().contradicted, 1);
    assert!(harness.database.acknowledge_contradiction(id, "alice").await.unwrap());
    assert!(!harness.database.acknowledge_contradiction(id, "alice").await.unwrap());
    assert_eq!(harness.half_row(&half).await.acknowledged_by.as_deref(), Some("alice"));
    assert_eq!(harness.database.half_message_stats().await.unwrap().contradicted, 0);
    let expected = [
        audit_row("sender", first.action(), id),
        audit_row("bob", "half-contradiction", id),
        audit_row("alice", "half-acknowledge", id),
    ];
    assert_eq!(harness.audit().await, expected);
}

pub async fn commit_before_prepare_enqueues_once_when_prepared<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    assert_eq!(harness.decide(&half, COMMIT).await, Decided::Early);
    assert_eq!(harness.decide(&half, COMMIT).await, Decided::Before);
    assert_eq!(harness.database.half_message_stats().await.unwrap().early_commits, 1);
    assert_eq!(harness.half_row(&half).await.topic, None);
    let leases = harness.lease_all("one").await;
    assert!(harness.due(&leases).await.is_empty());
    assert_eq!(harness.prepare(&half).await, Prepared::Fresh(HalfState::Committed));
    assert_eq!(harness.prepare(&half).await, Prepared::Repeated(HalfState::Committed));
    assert_eq!(harness.due_ids(&leases).await, [half.message.id]);
    assert_eq!(harness.database.half_message_stats().await.unwrap().early_commits, 0);
    assert_eq!(harness.audit().await, [audit_row("sender", "half-commit", half.message.id)]);
}

pub async fn rollback_before_prepare_is_never_published<F: DatabaseFixture>(harness: Harness<F>) {
    let half = half(keyed("a", 1));
    assert_eq!(harness.decide(&half, ROLLBACK).await, Decided::Early);
    assert_eq!(harness.decide(&half, COMMIT).await, Decided::Contradiction(ROLLBACK));
    assert_eq!(harness.prepare(&half).await, Prepared::Fresh(HalfState::RolledBack));
    assert_eq!(harness.prepare(&half).await, Prepared::Repeated(HalfState::RolledBack));
    assert_eq!(harness.database.stats().await.unwrap().pending, 0);
    assert!(harness.half_row(&half).await.next_check.is_none(), "a decided message has a check-back");
}

pub async fn concurrent_decisions_have_one_winner<F: DatabaseFixture>(harness: Harness<F>) {
    for (number, message) in series("a", 8).into_iter().enumerate() {
        let half = half(message);
        // Half of the rounds decide before the message is prepared.
        let is_early = number % 2 == 1;
        if !is_early {
            harness.prepare(&half).await;
        }
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..6 {
            let (database, id) = (harness.second().await, half.message.id);
            let verdict = if task % 2 == 0 { COMMIT } else { ROLLBACK };
            tasks.spawn(async move { (verdict, database.decide(id, verdict, "sender").await.unwrap()) });
        }
        let answers = tasks.join_all().await;
        let winner = if is_early { Decided::Early } else { Decided::Now };
        let winners: Vec<_> = answers.iter().filter(|(_, answer)| *answer == winner).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let first = winners[0].0;
        let agreed = answers.iter().filter(|(_, answer)| *answer == Decided::Before).count();
        let contradicted = answers.iter().filter(|(_, answer)| *answer == Decided::Contradiction(first)).count();
        assert_eq!((agreed, contradicted), (2, 3), "{answers:?}");
        assert_eq!(harness.half_row(&half).await.state, first.state());
    }
    let decisions = harness.audited().await.into_iter().filter(|(_, action)| action != "half-contradiction").count();
    assert_eq!(decisions, 8, "a decision was not audited exactly once");
}

pub async fn concurrent_prepare_and_commit_enqueue_once<F: DatabaseFixture>(harness: Harness<F>) {
    let halves: Vec<_> = series("a", 12).into_iter().map(half).collect();
    let (sender, decider) = (harness.second().await, harness.second().await);
    let preparing = {
        let halves = halves.clone();
        tokio::spawn(async move {
            for half in &halves {
                assert!(matches!(sender.prepare(half, &FIRST).await.unwrap(), Prepared::Fresh(_)));
            }
        })
    };
    for half in &halves {
        let decided = decider.decide(half.message.id, COMMIT, "sender").await.unwrap();
        assert!(matches!(decided, Decided::Now | Decided::Early), "{decided:?}");
    }
    preparing.await.unwrap();
    let leases = harness.lease_all("one").await;
    let mut due = harness.due_ids(&leases).await;
    due.sort();
    let mut expected: Vec<_> = halves.iter().map(|half| half.message.id).collect();
    expected.sort();
    assert_eq!(due, expected, "a message was not enqueued exactly once");
}
