//! Retention: expired rows are removed, and no others.

use std::time::Duration;

use landfall_core::adapter::{Admission, Decision, Lease, OutboxEntry};
use landfall_core::{
    Database, DeadLetterStatus, ErrorCode, Expiring, Housekeeping, Inbox, Message, OutboxFilter, OutboxQueue,
    OutboxState, OutboxView,
};

use super::harness::{LONG, TIMEOUT, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed, keyless, series};
use crate::eventually;

/// Runs steps of at most `at_most` rows until one removes fewer. Returns how many rows each step removed.
async fn steps(at_most: u64, mut step: impl AsyncFnMut(u64) -> u64) -> Vec<u64> {
    let mut removed = Vec::new();
    loop {
        let count = step(at_most).await;
        removed.push(count);
        if count < at_most {
            return removed;
        }
    }
}

/// A database that keeps sent messages.
struct SentMessages<D> {
    database: D,
    leases: Vec<Lease>,
    /// The only message that was not sent.
    pending: OutboxEntry,
}

/// Publishes `messages`, and enqueues one more that stays pending.
async fn send_and_keep<F: DatabaseFixture>(harness: &Harness<F>, messages: &[Message]) -> SentMessages<F::Database> {
    let database = harness.fixture.open_keeping_sent(LONG).await;
    harness.enqueue(messages).await;
    harness.enqueue(&[keyless()]).await;
    let leases = harness.lease_all("one").await;
    let mut due = database.next(&leases, messages.len() + 1).await.unwrap();
    let index = due.iter().position(|entry| messages.iter().all(|message| message.id != entry.message_id)).unwrap();
    let pending = due.remove(index);
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), messages.len());
    SentMessages { database, leases, pending }
}

pub async fn sent_messages_are_removed_after_retention<F: DatabaseFixture>(harness: Harness<F>) {
    let SentMessages { database: keeping, leases, pending } = send_and_keep(&harness, &series("a", 5)).await;

    let sent = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    assert_eq!(
        keeping.remove_expired(Expiring::Sent, LONG, 100).await.unwrap(),
        0,
        "rows were removed before their retention ended"
    );
    assert_eq!(keeping.list(&sent, 10).await.unwrap().len(), 5);
    eventually(TIMEOUT, "all sent messages are removed", async || {
        steps(2, async |at_most| keeping.remove_expired(Expiring::Sent, Duration::ZERO, at_most).await.unwrap()).await;
        keeping.list(&sent, 10).await.unwrap().is_empty()
    })
    .await;
    let stats = keeping.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (1, 5), "removed messages are still counted");
    assert_eq!(harness.due_ids(&leases).await, [pending.message_id], "the pending message is still due");
}

pub async fn sent_messages_can_be_archived_before_removal<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    let SentMessages { database: keeping, leases, pending } = send_and_keep(&harness, &messages).await;

    assert!(keeping.old_sent(LONG, 10).await.unwrap().is_empty(), "rows were returned before their retention ended");
    let mut old = Vec::new();
    eventually(TIMEOUT, "the sent messages expire", async || {
        old = keeping.old_sent(Duration::ZERO, 10).await.unwrap();
        old.len() == 3
    })
    .await;
    old.sort_by_key(|detail| detail.row.row);
    for (detail, message) in old.iter().zip(&messages) {
        assert_eq!((detail.row.message_id, &detail.payload), (message.id, &message.payload));
        assert_eq!((detail.row.state, detail.row.key.as_ref()), (OutboxState::Sent, message.key.as_ref()));
    }
    assert_eq!(keeping.old_sent(Duration::ZERO, 2).await.unwrap().len(), 2);

    // Includes a pending row and a row that does not exist.
    let rows: Vec<_> = old[..2].iter().map(|detail| detail.row.row).chain([pending.row, i64::MAX]).collect();
    assert_eq!(keeping.remove_these_sent(&rows).await.unwrap(), 2);
    assert_eq!(keeping.remove_these_sent(&rows).await.unwrap(), 0, "the rows are already removed");
    assert_eq!(keeping.remove_these_sent(&[]).await.unwrap(), 0);
    let sent = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    let kept: Vec<_> = keeping.list(&sent, 10).await.unwrap().iter().map(|row| row.message_id).collect();
    assert_eq!(kept, [messages[2].id]);
    assert_eq!(harness.due_ids(&leases).await, [pending.message_id], "the pending message is still due");
}

pub async fn inbox_ids_are_removed_after_retention<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 5));
    for message in &messages {
        harness.handle(&stock, message).await;
    }
    assert_eq!(
        harness.database.remove_expired(Expiring::HandledIds, LONG, 100).await.unwrap(),
        0,
        "rows were removed before their retention ended"
    );
    assert_eq!(harness.handle(&stock, &messages[0]).await, Admission::Duplicate);

    let mut removed = Vec::new();
    eventually(TIMEOUT, "all inbox rows are removed", async || {
        removed.extend(
            steps(2, async |n| harness.database.remove_expired(Expiring::HandledIds, Duration::ZERO, n).await.unwrap())
                .await,
        );
        removed.iter().sum::<u64>() == 5
    })
    .await;
    assert!(removed.iter().all(|step| *step <= 2), "a step removed too many rows: {removed:?}");
    assert_eq!(harness.handle(&stock, &messages[0]).await, Admission::Fresh, "the removed id is fresh again");
}

pub async fn guard_row_outlives_the_inbox<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, guard, handled) = (group("stock"), keyless(), keyless());
    let mut transaction = harness.database.begin().await.unwrap();
    for message in [&guard, &handled] {
        let admitted = harness.database.admit(&mut transaction, &stock, message, None).await.unwrap();
        assert_eq!(admitted, Admission::Fresh);
    }
    harness.database.keep_forever(&mut transaction, &stock, guard.id).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    let forgotten = async || {
        harness.database.remove_expired(Expiring::HandledIds, Duration::ZERO, 100).await.unwrap();
        harness.handle(&stock, &handled).await == Admission::Fresh
    };
    eventually(TIMEOUT, "the other id is forgotten", forgotten).await;
    assert_eq!(harness.handle(&stock, &guard).await, Admission::Duplicate);
}

pub async fn inbox_id_of_an_open_dead_letter_is_kept<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, payment, messages) = (group("stock"), group("payment"), series("a", 2));
    harness.park_with_successors(&stock, &messages).await;
    // In the other group the same messages were handled without a failure.
    for message in &messages {
        harness.handle(&payment, message).await;
    }
    let mut forgotten = 0;
    eventually(TIMEOUT, "the inbox rows of the other group are removed", async || {
        forgotten += harness.database.remove_expired(Expiring::HandledIds, Duration::ZERO, 100).await.unwrap();
        forgotten >= 2
    })
    .await;
    assert_eq!(
        (forgotten, harness.database.remove_expired(Expiring::HandledIds, Duration::ZERO, 100).await.unwrap()),
        (2, 0)
    );
    for message in &messages {
        assert_eq!(harness.handle(&stock, message).await, Admission::Duplicate, "the message is parked or waiting");
    }
    harness.redrive(&messages[0]).await;
    assert_eq!(
        harness.database.remove_expired(Expiring::HandledIds, Duration::ZERO, 100).await.unwrap(),
        0,
        "the inbox row of a redriving message was removed"
    );
    assert_eq!(harness.drain(&stock).await.len(), 2);

    let mut removed = 0;
    eventually(TIMEOUT, "the done letters are removed", async || {
        removed += harness.database.remove_expired(Expiring::DoneLetters, Duration::ZERO, 100).await.unwrap();
        removed == 2
    })
    .await;
    let mut fresh = Admission::Duplicate;
    eventually(TIMEOUT, "their inbox rows are removed", async || {
        harness.database.remove_expired(Expiring::HandledIds, Duration::ZERO, 100).await.unwrap();
        fresh = harness.handle(&stock, &messages[0]).await;
        fresh == Admission::Fresh
    })
    .await;
}

pub async fn done_dead_letters_are_removed_after_retention<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for message in series("done", 3) {
        harness.park(&stock, &message).await;
        harness.redrive(&message).await;
        harness.drain(&stock).await;
    }
    harness.park_with_successors(&stock, &series("parked", 2)).await;
    let redriving = keyed("redriving", 1);
    harness.park(&stock, &redriving).await;
    harness.redrive(&redriving).await;
    let audit = harness.audit().await;

    assert_eq!(
        harness.database.remove_expired(Expiring::DoneLetters, LONG, 100).await.unwrap(),
        0,
        "rows were removed before their retention ended"
    );
    let mut removed = Vec::new();
    eventually(TIMEOUT, "the done letters are removed", async || {
        let step = async |at_most| {
            harness.database.remove_expired(Expiring::DoneLetters, Duration::ZERO, at_most).await.unwrap()
        };
        removed.extend(steps(2, step).await);
        removed.iter().sum::<u64>() == 3
    })
    .await;
    assert!(removed.iter().all(|step| *step <= 2), "a step removed too many rows: {removed:?}");
    let left: Vec<_> = harness.letters().await.iter().map(|letter| letter.status).collect();
    assert_eq!(left, [DeadLetterStatus::Parked, DeadLetterStatus::Waiting, DeadLetterStatus::Redriving]);
    assert_eq!(harness.database.remove_expired(Expiring::DoneLetters, Duration::ZERO, 100).await.unwrap(), 0);
    assert_eq!(harness.audit().await, audit, "the audit trail changed");
}

/// A relay's dead letter is done once its message is back in the outbox; removing the letter keeps the message.
pub async fn removing_a_relay_dead_letter_keeps_its_message<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &messages[0], park()).await;
    assert_eq!(
        harness.database.remove_expired(Expiring::DoneLetters, Duration::ZERO, 100).await.unwrap(),
        0,
        "a parked letter was removed"
    );
    harness.redrive(&messages[0]).await;
    assert_eq!(
        harness.database.remove_expired(Expiring::DoneLetters, LONG, 100).await.unwrap(),
        0,
        "a letter was removed before its retention ended"
    );
    let mut removed = 0;
    eventually(TIMEOUT, "the letter is removed", async || {
        removed += harness.database.remove_expired(Expiring::DoneLetters, Duration::ZERO, 100).await.unwrap();
        removed == 1
    })
    .await;
    assert_eq!(harness.due_ids(&leases).await, [messages[0].id, messages[1].id]);
    harness.settle(&leases, &messages[0], park()).await;
    assert_eq!(harness.letter(&messages[0]).await.status, DeadLetterStatus::Parked, "the message can be parked again");
}
