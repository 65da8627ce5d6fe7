//! Taking charge of a message: once per group, together with the handler's own writes.

use std::time::Duration;

use landfall_core::{Admission, Database, Inbox, Mode};

use super::stage::A_MOMENT;
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{group, keyed, keyless};

pub async fn a_message_is_fresh_once_and_then_a_duplicate<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    for message in [keyed("a", 1), keyless()] {
        assert_eq!(stage.handle(&stock, &message).await, Admission::Fresh);
        assert_eq!(stage.handle(&stock, &message).await, Admission::Duplicate);
        let second = stage.second().await;
        let mut transaction = second.begin().await.unwrap();
        let verdict = second.admit(&mut transaction, &stock, &message, None).await.unwrap();
        assert_eq!(verdict, Admission::Duplicate, "for every process");
        second.commit(transaction).await.unwrap();
    }
    assert_eq!(stage.effects().await.len(), 2);
}

pub async fn a_rolled_back_handler_leaves_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    let mut transaction = stage.database.begin().await.unwrap();
    assert_eq!(stage.database.admit(&mut transaction, &stock, &message, None).await.unwrap(), Admission::Fresh);
    stage.fixture.insert_effect(&mut transaction, &(&message).into()).await;
    drop(transaction);

    assert_eq!(stage.handle(&stock, &message).await, Admission::Fresh);
    assert_eq!(stage.effects().await.len(), 1);
}

/// Holds a transaction open that took charge of a message, sends a copy, ends the transaction, and answers with the
/// copy's verdict.
async fn verdict_of_a_copy<F: DatabaseFixture>(stage: &Stage<F>, commit: bool) -> Admission {
    let (stock, message) = (group("stock"), keyed("a", 1));
    let mut first = stage.database.begin().await.unwrap();
    assert_eq!(stage.database.admit(&mut first, &stock, &message, None).await.unwrap(), Admission::Fresh);

    let second = stage.second().await;
    let mut copy = tokio::spawn(async move {
        let mut transaction = second.begin().await.unwrap();
        let verdict = second.admit(&mut transaction, &stock, &message, None).await.unwrap();
        second.commit(transaction).await.unwrap();
        verdict
    });
    assert!(tokio::time::timeout(A_MOMENT, &mut copy).await.is_err(), "the copy does not wait for the first");
    if commit {
        stage.database.commit(first).await.unwrap();
    } else {
        drop(first);
    }
    tokio::time::timeout(Duration::from_secs(60), copy).await.expect("the copy goes on").unwrap()
}

pub async fn a_concurrent_copy_waits_for_the_commit_and_is_a_duplicate<F: DatabaseFixture>(stage: Stage<F>) {
    if F::capabilities().concurrent_writers {
        assert_eq!(verdict_of_a_copy(&stage, true).await, Admission::Duplicate);
    }
}

pub async fn a_concurrent_copy_waits_for_the_rollback_and_is_fresh<F: DatabaseFixture>(stage: Stage<F>) {
    if F::capabilities().concurrent_writers {
        assert_eq!(verdict_of_a_copy(&stage, false).await, Admission::Fresh);
    }
}

pub async fn a_message_that_is_not_deduplicated_leaves_no_row<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    for mode in [Mode::AtMostOnce, Mode::AtLeastOnce] {
        let message = keyed("a", 1).with_mode(mode);
        assert_eq!(stage.handle(&stock, &message).await, Admission::Fresh);
        assert_eq!(stage.handle(&stock, &message).await, Admission::Fresh, "{mode} is not deduplicated");
        // Had it left a row, the same id would be a duplicate where ids are compared.
        let compared = message.with_mode(Mode::EffectivelyOnce);
        assert_eq!(stage.handle(&stock, &compared).await, Admission::Fresh);
    }
}

pub async fn groups_do_not_see_each_other<F: DatabaseFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    assert_eq!(stage.handle(&group("stock"), &message).await, Admission::Fresh);
    assert_eq!(stage.handle(&group("payment"), &message).await, Admission::Fresh);
    assert_eq!(stage.handle(&group("stock"), &message).await, Admission::Duplicate);

    stage.park(&group("stock"), &keyed("b", 1)).await;
    assert_eq!(stage.handle(&group("stock"), &keyed("b", 2)).await, Admission::Held);
    assert_eq!(stage.handle(&group("payment"), &keyed("b", 2)).await, Admission::Fresh);
}
