//! Senders that retry: a message is enqueued once per id.

use std::time::Duration;

use landfall_core::adapter::Decision;
use landfall_core::{Appended, ErrorKind, Expiring, Fingerprint, Housekeeping, IdempotentAppend, Limits, OutboxView};

use super::harness::{LONG, TIMEOUT};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{keyed, series};
use crate::eventually;

const FIRST: Fingerprint = [1; 32];
/// Differs in its last byte only.
const SECOND: Fingerprint = {
    let mut print = FIRST;
    print[31] = 2;
    print
};

pub async fn retry_is_enqueued_once_even_after_it_was_sent<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    assert_eq!(harness.database.append_once(&message, &FIRST).await.unwrap(), Appended::Fresh);
    assert_eq!(harness.database.append_once(&message, &FIRST).await.unwrap(), Appended::Repeated);
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due_ids(&leases).await, [message.id]);

    harness.settle(&leases, &message, Decision::Published).await;
    // Another process, and a later time: only the id, the content and the fingerprint are the same.
    let retry = keyed("a", 1).with_id(message.id);
    assert_eq!(harness.second().await.append_once(&retry, &FIRST).await.unwrap(), Appended::Repeated);
    assert!(harness.due(&leases).await.is_empty());
    assert_eq!(harness.database.stats().await.unwrap().published, 1);
}

pub async fn another_message_under_the_same_id_is_refused<F: DatabaseFixture>(harness: Harness<F>) {
    let (message, other) = (keyed("a", 1), keyed("b", 1));
    harness.database.append_once(&message, &FIRST).await.unwrap();
    let other = other.with_id(message.id);
    assert_eq!(harness.database.append_once(&other, &SECOND).await.unwrap(), Appended::Conflict);
    let leases = harness.lease_all("one").await;
    let due: Vec<_> = harness.due(&leases).await.into_iter().map(|entry| entry.message.unwrap().key).collect();
    assert_eq!(due, [message.key]);
}

pub async fn concurrent_retries_enqueue_one_message<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 4);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (database, messages) = (harness.second().await, messages.clone());
        tasks.spawn(async move {
            let mut fresh = 0;
            for message in &messages {
                match database.append_once(message, &FIRST).await.unwrap() {
                    Appended::Fresh => fresh += 1,
                    Appended::Repeated => {}
                    Appended::Conflict => panic!("an equal message counts as another one"),
                }
            }
            fresh
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<u32>(), 4, "a message was not enqueued exactly once");
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due(&leases).await.len(), 4);
}

pub async fn refused_append_does_not_remember_the_id<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    let too_large =
        landfall_core::Message { payload: vec![0; Limits::default().payload_bytes + 1].into(), ..message.clone() };
    let error = harness.database.append_once(&too_large, &SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(harness.database.append_once(&message, &FIRST).await.unwrap(), Appended::Fresh);
}

pub async fn batch_is_enqueued_once_per_id_in_its_order<F: DatabaseFixture>(harness: Harness<F>) {
    let known = keyed("a", 1);
    harness.database.append_once(&known, &FIRST).await.unwrap();
    // Ids of the batch are not in order, and the messages are all of one key.
    let mut fresh = series("a", 4);
    fresh.reverse();
    let plain = keyed("a", 9);
    let sends = [
        (fresh[0].clone(), Some(FIRST)),
        (known.clone(), Some(FIRST)),
        (known.clone(), Some(SECOND)),
        (fresh[1].clone(), Some(FIRST)),
        (plain.clone(), None),
        (fresh[1].clone(), Some(FIRST)),
        (fresh[1].clone(), Some(SECOND)),
        (fresh[2].clone(), Some(SECOND)),
        (fresh[3].clone(), None),
    ];
    use Appended::{Conflict, Fresh, Repeated};
    let appended = harness.database.append_batch_once(&sends).await.unwrap();
    assert_eq!(appended, [Fresh, Repeated, Conflict, Fresh, Fresh, Repeated, Conflict, Fresh, Fresh]);
    let again = harness.second().await.append_batch_once(&sends[..4]).await.unwrap();
    assert_eq!(again, [Repeated, Repeated, Conflict, Repeated]);
    assert!(harness.database.append_batch_once(&[]).await.unwrap().is_empty());
    let leases = harness.lease_all("one").await;
    let expected = [known.id, fresh[0].id, fresh[1].id, plain.id, fresh[2].id, fresh[3].id];
    assert_eq!(harness.due_ids(&leases).await, expected);
    // A message without a fingerprint leaves nothing behind.
    assert_eq!(harness.database.append_once(&plain, &SECOND).await.unwrap(), Fresh);
}

pub async fn concurrent_batches_in_any_order_do_not_deadlock<F: DatabaseFixture>(harness: Harness<F>) {
    const BATCHES: usize = 6;
    let messages = series("a", 60);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..BATCHES {
        let database = harness.second().await;
        let mut sends: Vec<_> = messages.iter().map(|message| (message.clone(), Some(FIRST))).collect();
        tasks.spawn(async move {
            let mut fresh = 0;
            for round in sends.chunks_mut(20) {
                round.rotate_left(3 * task);
                if task % 2 == 1 {
                    round.reverse();
                }
                let appended = database.append_batch_once(round).await.unwrap();
                assert!(appended.iter().all(|appended| *appended != Appended::Conflict), "{appended:?}");
                fresh += appended.iter().filter(|appended| **appended == Appended::Fresh).count();
            }
            fresh
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<usize>(), 60, "a message was not enqueued exactly once");
    let leases = harness.lease_all("one").await;
    assert_eq!(harness.due(&leases).await.len(), 60);
}

pub async fn refused_message_of_a_batch_leaves_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    let too_large =
        landfall_core::Message { payload: vec![0; Limits::default().payload_bytes + 1].into(), ..keyed("b", 1) };
    let sends = [(messages[0].clone(), Some(FIRST)), (too_large, None), (messages[1].clone(), None)];
    let error = harness.database.append_batch_once(&sends).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(harness.database.stats().await.unwrap().pending, 0);
    assert_eq!(harness.database.append_once(&messages[0], &SECOND).await.unwrap(), Appended::Fresh);
}

pub async fn enqueued_ids_are_removed_after_retention<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    for message in &messages {
        harness.database.append_once(message, &FIRST).await.unwrap();
    }
    let remove =
        async |age, at_most| harness.database.remove_expired(Expiring::EnqueuedIds, age, at_most).await.unwrap();
    assert_eq!(remove(LONG, 100).await, 0, "ids were removed before their retention ended");
    assert_eq!(harness.database.append_once(&messages[0], &FIRST).await.unwrap(), Appended::Repeated);
    let mut removed = 0;
    eventually(TIMEOUT, "all ids are removed", async || {
        let step = remove(Duration::ZERO, 2).await;
        assert!(step <= 2, "a step removed too many ids: {step}");
        removed += step;
        removed == 3
    })
    .await;
    assert_eq!(harness.database.append_once(&messages[0], &FIRST).await.unwrap(), Appended::Fresh);
}
