//! Sequences: each entity's highest sequence, committed with the effect, one transaction at a time per entity.

use std::time::Duration;

use landfall_core::adapter::{EntityName, Hold};
use landfall_core::{Database, Expiring, GroupName, Housekeeping, Sequences};

use super::harness::{LONG, SHORT_WAIT, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed};
use crate::eventually;

const A: EntityName<'static> = ("orders", "a");
const B: EntityName<'static> = ("orders", "b");

async fn reached<F: DatabaseFixture>(
    harness: &Harness<F>,
    group: &GroupName,
    names: &[EntityName<'_>],
) -> Vec<Option<i64>> {
    let mut transaction = harness.database.begin().await.unwrap();
    let reached = harness.database.reached(&mut transaction, group, names).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    reached
}

pub async fn sequence_is_recorded_only_on_commit<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for commit in [false, true] {
        let mut transaction = harness.database.begin().await.unwrap();
        assert_eq!(harness.database.reached(&mut transaction, &stock, &[A, B]).await.unwrap(), [None, None]);
        harness.database.reach(&mut transaction, &stock, &[(A, 7)]).await.unwrap();
        if commit {
            harness.database.commit(transaction).await.unwrap();
        } else {
            drop(transaction);
        }
    }
    assert_eq!(reached(&harness, &stock, &[A, B]).await, [Some(7), None]);
    assert_eq!(reached(&harness, &stock, &[B]).await, [None]);
    assert!(reached(&harness, &stock, &[]).await.is_empty());
    let elsewhere = [("payments", "a")];
    assert_eq!(reached(&harness, &stock, &elsewhere).await, [None], "topics are not independent");
    assert_eq!(reached(&harness, &group("payment"), &[A]).await, [None], "groups are not independent");
}

pub async fn sequences_cover_the_i64_range<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.reached(&mut transaction, &stock, &[A, B]).await.unwrap();
    harness.database.reach(&mut transaction, &stock, &[(A, i64::MIN), (B, i64::MAX)]).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    assert_eq!(reached(&harness, &stock, &[A, B]).await, [Some(i64::MIN), Some(i64::MAX)]);
}

/// For a new entity there is no row to lock, and a second transaction must wait nevertheless.
pub async fn concurrent_reads_of_a_new_entity_are_serialized<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for number in [1, 2] {
        let mut first = harness.database.begin().await.unwrap();
        harness.database.reached(&mut first, &stock, &[A]).await.unwrap();
        harness.database.reach(&mut first, &stock, &[(A, number)]).await.unwrap();

        let (second, stock) = (harness.second().await, stock.clone());
        let mut other = tokio::spawn(async move {
            let mut transaction = second.begin().await.unwrap();
            let reached = second.reached(&mut transaction, &stock, &[A, B]).await.unwrap();
            second.commit(transaction).await.unwrap();
            reached
        });
        assert!(tokio::time::timeout(SHORT_WAIT, &mut other).await.is_err(), "the second transaction did not wait");
        harness.database.commit(first).await.unwrap();
        let reached = tokio::time::timeout(Duration::from_secs(60), other)
            .await
            .expect("the second transaction did not continue")
            .unwrap();
        assert_eq!(reached, [Some(number), None]);
    }
}

pub async fn old_sequences_are_removed_unless_a_dead_letter_is_open<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    let mut transaction = harness.database.begin().await.unwrap();
    harness.database.reached(&mut transaction, &stock, &[A, B]).await.unwrap();
    harness.database.reach(&mut transaction, &stock, &[(A, 7), (B, 8)]).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    // The retry of this message will compare its sequence.
    let delayed = keyed("b", 9);
    assert_eq!(delayed.topic.as_str(), B.0);
    harness.delay(&stock, &delayed, Hold::Key, LONG).await;

    assert_eq!(
        harness.database.remove_expired(Expiring::Sequences, LONG, 100).await.unwrap(),
        0,
        "sequences were removed before their retention ended"
    );
    let mut forgotten = 0;
    eventually(TIMEOUT, "one sequence is removed", async || {
        forgotten += harness.database.remove_expired(Expiring::Sequences, Duration::ZERO, 100).await.unwrap();
        forgotten == 1
    })
    .await;
    assert_eq!(reached(&harness, &stock, &[A, B]).await, [None, Some(8)]);
}
