//! What each entity has reached: kept with the effect, and one transaction at a time per entity.

use std::time::Duration;

use landfall_core::{Database, EntityName, GroupName, Hold, Housekeeping, Sequences};

use super::stage::{A_MOMENT, LONG, SOON};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{group, keyed};
use crate::eventually;

const A: EntityName<'static> = ("orders", "a");
const B: EntityName<'static> = ("orders", "b");

async fn reached<F: DatabaseFixture>(
    stage: &Stage<F>,
    group: &GroupName,
    names: &[EntityName<'_>],
) -> Vec<Option<i64>> {
    let mut transaction = stage.database.begin().await.unwrap();
    let reached = stage.database.reached(&mut transaction, group, names).await.unwrap();
    stage.database.commit(transaction).await.unwrap();
    reached
}

pub async fn a_number_is_reached_with_the_commit_and_only_then<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    for commit in [false, true] {
        let mut transaction = stage.database.begin().await.unwrap();
        assert_eq!(stage.database.reached(&mut transaction, &stock, &[A, B]).await.unwrap(), [None, None]);
        stage.database.reach(&mut transaction, &stock, &[(A, 7)]).await.unwrap();
        if commit {
            stage.database.commit(transaction).await.unwrap();
        } else {
            drop(transaction);
        }
    }
    assert_eq!(reached(&stage, &stock, &[A, B]).await, [Some(7), None]);
    assert_eq!(reached(&stage, &stock, &[B]).await, [None]);
    assert!(reached(&stage, &stock, &[]).await.is_empty());
    let elsewhere = [("payments", "a")];
    assert_eq!(reached(&stage, &stock, &elsewhere).await, [None], "topics are apart");
    assert_eq!(reached(&stage, &group("payment"), &[A]).await, [None], "groups are apart");
}

pub async fn numbers_may_go_to_both_ends<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    let mut transaction = stage.database.begin().await.unwrap();
    stage.database.reached(&mut transaction, &stock, &[A, B]).await.unwrap();
    stage.database.reach(&mut transaction, &stock, &[(A, i64::MIN), (B, i64::MAX)]).await.unwrap();
    stage.database.commit(transaction).await.unwrap();
    assert_eq!(reached(&stage, &stock, &[A, B]).await, [Some(i64::MIN), Some(i64::MAX)]);
}

/// Nothing is there to be locked when an entity is met for the first time, and yet the second one must wait.
pub async fn whoever_asks_for_the_same_entity_waits_also_the_first_time<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().concurrent_writers {
        return;
    }
    let stock = group("stock");
    for number in [1, 2] {
        let mut first = stage.database.begin().await.unwrap();
        stage.database.reached(&mut first, &stock, &[A]).await.unwrap();
        stage.database.reach(&mut first, &stock, &[(A, number)]).await.unwrap();

        let (second, stock) = (stage.second().await, stock.clone());
        let mut other = tokio::spawn(async move {
            let mut transaction = second.begin().await.unwrap();
            let reached = second.reached(&mut transaction, &stock, &[A, B]).await.unwrap();
            second.commit(transaction).await.unwrap();
            reached
        });
        assert!(tokio::time::timeout(A_MOMENT, &mut other).await.is_err(), "the second does not wait");
        stage.database.commit(first).await.unwrap();
        let reached = tokio::time::timeout(Duration::from_secs(60), other).await.expect("it goes on").unwrap();
        assert_eq!(reached, [Some(number), None]);
    }
}

pub async fn what_was_reached_long_ago_is_forgotten_unless_a_letter_is_open<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    let mut transaction = stage.database.begin().await.unwrap();
    stage.database.reached(&mut transaction, &stock, &[A, B]).await.unwrap();
    stage.database.reach(&mut transaction, &stock, &[(A, 7), (B, 8)]).await.unwrap();
    stage.database.commit(transaction).await.unwrap();
    // Its number will be compared when it is tried again.
    let delayed = keyed("b", 9);
    assert_eq!(delayed.topic.as_str(), B.0);
    stage.delay(&stock, &delayed, Hold::Key, LONG).await;

    assert_eq!(stage.database.forget_sequences(LONG, 100).await.unwrap(), 0, "their time has not come");
    let mut forgotten = 0;
    eventually(SOON, "one is forgotten", async || {
        forgotten += stage.database.forget_sequences(Duration::ZERO, 100).await.unwrap();
        forgotten == 1
    })
    .await;
    assert_eq!(reached(&stage, &stock, &[A, B]).await, [None, Some(8)]);
}
