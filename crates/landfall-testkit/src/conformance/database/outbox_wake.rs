//! Waiting for a commit: wakes are never lost, and a wait never exceeds its timeout.

use std::time::{Duration, Instant};

use landfall_core::{OutboxQueue, OutboxWriter};

use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::keyed;

/// Asserts that a wait ends early. Its timeout exceeds the limit of the case, so that only a wake can end it.
async fn assert_woken<D: OutboxQueue>(database: &D) {
    tokio::time::timeout(TIMEOUT, database.wait(LONG)).await.expect("the wake did not end the wait");
}

pub async fn wake_before_wait_is_not_lost<F: DatabaseFixture>(harness: Harness<F>) {
    harness.enqueue(&[keyed("a", 1)]).await;
    harness.database.wake();
    assert_woken(&harness.database).await;
}

pub async fn wake_ends_the_wait<F: DatabaseFixture>(harness: Harness<F>) {
    let waiting = harness.database.clone();
    let mut waiter = tokio::spawn(async move { waiting.wait(LONG).await });
    // Usually the task is waiting by then; if not, this is `wake_before_wait_is_not_lost`.
    let _ = tokio::time::timeout(Duration::from_millis(50), &mut waiter).await;
    harness.enqueue(&[keyed("a", 1)]).await;
    harness.database.wake();
    if !waiter.is_finished() {
        tokio::time::timeout(TIMEOUT, waiter).await.expect("the wake did not end the wait").unwrap();
    }
}

pub async fn append_ends_the_wait<F: DatabaseFixture>(harness: Harness<F>) {
    harness.database.append(&[keyed("a", 1)]).await.unwrap();
    assert_woken(&harness.database).await;
}

pub async fn commit_in_another_process_ends_the_wait<F: DatabaseFixture>(harness: Harness<F>) {
    let waiting = harness.second().await;
    let mut waiter = tokio::spawn(async move { waiting.wait(LONG).await });
    let started = Instant::now();
    // The port does not promise to notice commits that happen while the waiter is still starting to listen.
    loop {
        harness.enqueue(&[keyed("a", 1)]).await;
        harness.database.wake();
        match tokio::time::timeout(Duration::from_millis(500), &mut waiter).await {
            Ok(finished) => break finished.unwrap(),
            Err(_) => assert!(started.elapsed() < TIMEOUT, "a commit in another process did not end the wait"),
        }
    }
}

pub async fn wait_ends_after_its_timeout<F: DatabaseFixture>(harness: Harness<F>) {
    let (started, wait) = (Instant::now(), Duration::from_millis(100));
    for _ in 0..5 {
        tokio::time::timeout(TIMEOUT, harness.database.wait(wait)).await.expect("the wait exceeded its timeout");
    }
    // A wait may end early occasionally; if it always did, the relay would spin.
    assert!(started.elapsed() >= 2 * wait, "five waits of {wait:?} took {:?}", started.elapsed());
}
