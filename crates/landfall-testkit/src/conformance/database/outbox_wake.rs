//! Waiting for a commit: woken at once, never in vain, and never for longer than asked.

use std::time::{Duration, Instant};

use landfall_core::{OutboxQueue, OutboxWriter};

use super::stage::{LONG, SOON};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::keyed;

/// Waits for far longer than the case may take, so that only a wake can end it.
async fn is_woken<D: OutboxQueue>(database: &D) {
    tokio::time::timeout(SOON, database.wait(LONG)).await.expect("the wait ends with the wake");
}

pub async fn a_wake_before_the_wait_is_not_lost<F: DatabaseFixture>(stage: Stage<F>) {
    stage.enqueue(&[keyed("a", 1)]).await;
    stage.database.wake();
    is_woken(&stage.database).await;
}

pub async fn a_wake_ends_the_wait<F: DatabaseFixture>(stage: Stage<F>) {
    let waiting = stage.database.clone();
    let mut waiter = tokio::spawn(async move { waiting.wait(LONG).await });
    // Usually the waiter is waiting by then; if not, the case before covers it.
    let _ = tokio::time::timeout(Duration::from_millis(50), &mut waiter).await;
    stage.enqueue(&[keyed("a", 1)]).await;
    stage.database.wake();
    if !waiter.is_finished() {
        tokio::time::timeout(SOON, waiter).await.expect("the wait ends with the wake").unwrap();
    }
}

pub async fn append_ends_the_wait<F: DatabaseFixture>(stage: Stage<F>) {
    stage.database.append(&[keyed("a", 1)]).await.unwrap();
    is_woken(&stage.database).await;
}

pub async fn a_commit_elsewhere_ends_the_wait<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().wakes_across_processes {
        return;
    }
    let waiting = stage.second().await;
    let mut waiter = tokio::spawn(async move { waiting.wait(LONG).await });
    let started = Instant::now();
    // Nobody promises that the first commits are noticed while the waiter is only beginning to listen.
    loop {
        stage.enqueue(&[keyed("a", 1)]).await;
        stage.database.wake();
        match tokio::time::timeout(Duration::from_millis(500), &mut waiter).await {
            Ok(finished) => break finished.unwrap(),
            Err(_) => assert!(started.elapsed() < SOON, "a commit in another process ends the wait"),
        }
    }
}

pub async fn a_wait_ends_after_its_time_and_not_much_sooner<F: DatabaseFixture>(stage: Stage<F>) {
    let (started, wait) = (Instant::now(), Duration::from_millis(100));
    for _ in 0..5 {
        tokio::time::timeout(SOON, stage.database.wait(wait)).await.expect("the wait ends after its time");
    }
    // A wait may end early now and then, but one that always does would keep the relay spinning.
    assert!(started.elapsed() >= 2 * wait, "five waits of {wait:?} took {:?}", started.elapsed());
}
