//! Admission: each message once per group, in one transaction with the handler's writes.

use std::time::Duration;

use landfall_core::adapter::Admission;
use landfall_core::{Database, Inbox, Mode};

use super::harness::SHORT_WAIT;
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed, keyless};

pub async fn message_is_fresh_once_then_a_duplicate<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for message in [keyed("a", 1), keyless()] {
        assert_eq!(harness.handle(&stock, &message).await, Admission::Fresh);
        assert_eq!(harness.handle(&stock, &message).await, Admission::Duplicate);
        let second = harness.second().await;
        let mut transaction = second.begin().await.unwrap();
        let admission = second.admit(&mut transaction, &stock, &message, None).await.unwrap();
        assert_eq!(admission, Admission::Duplicate, "another process admitted the message again");
        second.commit(transaction).await.unwrap();
    }
    assert_eq!(harness.effects().await.len(), 2);
}

pub async fn rolled_back_handler_leaves_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    let mut transaction = harness.database.begin().await.unwrap();
    assert_eq!(harness.database.admit(&mut transaction, &stock, &message, None).await.unwrap(), Admission::Fresh);
    harness.fixture.insert_effect(&mut transaction, &(&message).into()).await;
    drop(transaction);

    assert_eq!(harness.handle(&stock, &message).await, Admission::Fresh);
    assert_eq!(harness.effects().await.len(), 1);
}

/// Admits a message in an open transaction and a duplicate in another, ends the first, and returns the admission of the
/// duplicate.
async fn admit_concurrent_duplicate<F: DatabaseFixture>(harness: &Harness<F>, commit: bool) -> Admission {
    let (stock, message) = (group("stock"), keyed("a", 1));
    let mut first = harness.database.begin().await.unwrap();
    assert_eq!(harness.database.admit(&mut first, &stock, &message, None).await.unwrap(), Admission::Fresh);

    let second = harness.second().await;
    let mut duplicate = tokio::spawn(async move {
        let mut transaction = second.begin().await.unwrap();
        let admission = second.admit(&mut transaction, &stock, &message, None).await.unwrap();
        second.commit(transaction).await.unwrap();
        admission
    });
    assert!(
        tokio::time::timeout(SHORT_WAIT, &mut duplicate).await.is_err(),
        "the duplicate did not wait for the first transaction"
    );
    if commit {
        harness.database.commit(first).await.unwrap();
    } else {
        drop(first);
    }
    tokio::time::timeout(Duration::from_secs(60), duplicate).await.expect("the duplicate did not continue").unwrap()
}

pub async fn concurrent_duplicate_waits_for_the_commit<F: DatabaseFixture>(harness: Harness<F>) {
    assert_eq!(admit_concurrent_duplicate(&harness, true).await, Admission::Duplicate);
}

pub async fn concurrent_duplicate_is_fresh_after_a_rollback<F: DatabaseFixture>(harness: Harness<F>) {
    assert_eq!(admit_concurrent_duplicate(&harness, false).await, Admission::Fresh);
}

pub async fn modes_without_dedup_leave_no_inbox_row<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for mode in [Mode::AtMostOnce, Mode::AtLeastOnce] {
        let message = keyed("a", 1).with_mode(mode);
        assert_eq!(harness.handle(&stock, &message).await, Admission::Fresh);
        assert_eq!(harness.handle(&stock, &message).await, Admission::Fresh, "{mode} is not deduplicated");
        // If it had left a row, the same id would be a duplicate in this mode.
        let compared = message.with_mode(Mode::EffectivelyOnce);
        assert_eq!(harness.handle(&stock, &compared).await, Admission::Fresh);
    }
}

pub async fn inbox_groups_are_independent<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    assert_eq!(harness.handle(&group("stock"), &message).await, Admission::Fresh);
    assert_eq!(harness.handle(&group("payment"), &message).await, Admission::Fresh);
    assert_eq!(harness.handle(&group("stock"), &message).await, Admission::Duplicate);

    harness.park(&group("stock"), &keyed("b", 1)).await;
    assert_eq!(harness.handle(&group("stock"), &keyed("b", 2)).await, Admission::Held);
    assert_eq!(harness.handle(&group("payment"), &keyed("b", 2)).await, Admission::Fresh);
}
