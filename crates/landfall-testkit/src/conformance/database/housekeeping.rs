//! What nobody needs any more goes when its time has come, and nothing else does.

use std::time::Duration;

use landfall_core::{
    Admission, DeadLetterStatus, Decision, ErrorCode, Housekeeping, Lease, Message, OutboxEntry, OutboxFilter,
    OutboxQueue, OutboxState, OutboxView,
};

use super::stage::{LONG, SOON, settlement};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{group, keyed, keyless, series};
use crate::eventually;

/// Steps of at most `at_most` until one says that it was the last; answers with what each of them removed.
async fn steps(at_most: u64, mut step: impl AsyncFnMut(u64) -> u64) -> Vec<u64> {
    let mut removed = Vec::new();
    loop {
        let this = step(at_most).await;
        removed.push(this);
        if this < at_most {
            return removed;
        }
    }
}

/// A database that keeps what was sent.
struct Kept<D> {
    database: D,
    leases: Vec<Lease>,
    /// The one message that was not.
    pending: OutboxEntry,
}

/// All of `messages` were sent, and one behind them was not.
async fn kept<F: DatabaseFixture>(stage: &Stage<F>, messages: &[Message]) -> Kept<F::Database> {
    let database = stage.fixture.open_keeping_sent(LONG).await;
    stage.enqueue(messages).await;
    stage.enqueue(&[keyless()]).await;
    let leases = stage.lease_all("one").await;
    let mut due = database.next(&leases, messages.len() + 1).await.unwrap();
    let place = due.iter().position(|entry| messages.iter().all(|message| message.id != entry.message_id)).unwrap();
    let pending = due.remove(place);
    let settlements: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), messages.len());
    Kept { database, leases, pending }
}

pub async fn sent_messages_go_after_their_time<F: DatabaseFixture>(stage: Stage<F>) {
    let Kept { database: keeping, leases, pending } = kept(&stage, &series("a", 5)).await;

    let kept = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    assert_eq!(keeping.remove_sent(LONG, 100).await.unwrap(), 0, "their time has not come");
    assert_eq!(keeping.list(&kept, 10).await.unwrap().len(), 5);
    eventually(SOON, "all that was sent is gone", async || {
        steps(2, async |at_most| keeping.remove_sent(Duration::ZERO, at_most).await.unwrap()).await;
        keeping.list(&kept, 10).await.unwrap().is_empty()
    })
    .await;
    let stats = keeping.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (1, 5), "what was sent is still counted");
    assert_eq!(stage.due_ids(&leases).await, [pending.message_id], "what was not sent is still there");
}

pub async fn sent_messages_can_be_had_elsewhere_before_they_go<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 3);
    let Kept { database: keeping, leases, pending } = kept(&stage, &messages).await;

    assert!(keeping.old_sent(LONG, 10).await.unwrap().is_empty(), "their time has not come");
    let mut old = Vec::new();
    eventually(SOON, "their time has come", async || {
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

    // Among them the row of one that was not sent, and one that nobody has.
    let rows: Vec<_> = old[..2].iter().map(|detail| detail.row.row).chain([pending.row, i64::MAX]).collect();
    assert_eq!(keeping.remove_these_sent(&rows).await.unwrap(), 2);
    assert_eq!(keeping.remove_these_sent(&rows).await.unwrap(), 0, "they are gone");
    assert_eq!(keeping.remove_these_sent(&[]).await.unwrap(), 0);
    let kept = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    let kept: Vec<_> = keeping.list(&kept, 10).await.unwrap().iter().map(|row| row.message_id).collect();
    assert_eq!(kept, [messages[2].id]);
    assert_eq!(stage.due_ids(&leases).await, [pending.message_id], "what was not sent is still there");
}

pub async fn a_handled_id_is_forgotten_after_its_time<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 5));
    for message in &messages {
        stage.handle(&stock, message).await;
    }
    assert_eq!(stage.database.forget_handled(LONG, 100).await.unwrap(), 0, "their time has not come");
    assert_eq!(stage.handle(&stock, &messages[0]).await, Admission::Duplicate);

    let mut removed = Vec::new();
    eventually(SOON, "all are forgotten", async || {
        removed.extend(steps(2, async |n| stage.database.forget_handled(Duration::ZERO, n).await.unwrap()).await);
        removed.iter().sum::<u64>() == 5
    })
    .await;
    assert!(removed.iter().all(|step| *step <= 2), "in small steps: {removed:?}");
    assert_eq!(stage.handle(&stock, &messages[0]).await, Admission::Fresh, "it would take effect again");
}

pub async fn the_id_of_a_dead_letter_is_not_forgotten<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, payment, messages) = (group("stock"), group("payment"), series("a", 2));
    stage.park_with_successors(&stock, &messages).await;
    // Elsewhere the same messages were handled and nothing is wrong with them.
    for message in &messages {
        stage.handle(&payment, message).await;
    }
    let mut forgotten = 0;
    eventually(SOON, "the other group's are forgotten", async || {
        forgotten += stage.database.forget_handled(Duration::ZERO, 100).await.unwrap();
        forgotten >= 2
    })
    .await;
    assert_eq!((forgotten, stage.database.forget_handled(Duration::ZERO, 100).await.unwrap()), (2, 0));
    for message in &messages {
        assert_eq!(stage.handle(&stock, message).await, Admission::Duplicate, "parked, or waiting behind it");
    }
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.database.forget_handled(Duration::ZERO, 100).await.unwrap(), 0, "on its way back");
    assert_eq!(stage.drain(&stock).await.len(), 2);

    let mut removed = 0;
    eventually(SOON, "the letters are gone", async || {
        removed += stage.database.remove_done_letters(Duration::ZERO, 100).await.unwrap();
        removed == 2
    })
    .await;
    let mut fresh = Admission::Duplicate;
    eventually(SOON, "their ids are forgotten", async || {
        stage.database.forget_handled(Duration::ZERO, 100).await.unwrap();
        fresh = stage.handle(&stock, &messages[0]).await;
        fresh == Admission::Fresh
    })
    .await;
}

pub async fn done_letters_go_after_their_time_and_open_ones_stay<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    for message in series("done", 3) {
        stage.park(&stock, &message).await;
        stage.redrive(&message).await;
        stage.drain(&stock).await;
    }
    stage.park_with_successors(&stock, &series("parked", 2)).await;
    let redriving = keyed("redriving", 1);
    stage.park(&stock, &redriving).await;
    stage.redrive(&redriving).await;
    let audit = stage.audit().await;

    assert_eq!(stage.database.remove_done_letters(LONG, 100).await.unwrap(), 0, "their time has not come");
    let mut removed = Vec::new();
    eventually(SOON, "the done ones are gone", async || {
        let step = async |at_most| stage.database.remove_done_letters(Duration::ZERO, at_most).await.unwrap();
        removed.extend(steps(2, step).await);
        removed.iter().sum::<u64>() == 3
    })
    .await;
    assert!(removed.iter().all(|step| *step <= 2), "in small steps: {removed:?}");
    let left: Vec<_> = stage.letters().await.iter().map(|letter| letter.status).collect();
    assert_eq!(left, [DeadLetterStatus::Parked, DeadLetterStatus::Waiting, DeadLetterStatus::Redriving]);
    assert_eq!(stage.database.remove_done_letters(Duration::ZERO, 100).await.unwrap(), 0);
    assert_eq!(stage.audit().await, audit, "the audit trail stays");
}

/// A letter of the relay is done when it is back in the outbox; the message is there whatever becomes of the letter.
pub async fn a_done_letter_of_the_relay_goes_and_its_message_stays<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    stage.settle(&leases, &messages[0], park()).await;
    assert_eq!(stage.database.remove_done_letters(Duration::ZERO, 100).await.unwrap(), 0, "it is parked");
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.database.remove_done_letters(LONG, 100).await.unwrap(), 0, "done a moment ago");
    let mut removed = 0;
    eventually(SOON, "the letter is gone", async || {
        removed += stage.database.remove_done_letters(Duration::ZERO, 100).await.unwrap();
        removed == 1
    })
    .await;
    assert_eq!(stage.due_ids(&leases).await, [messages[0].id, messages[1].id]);
    stage.settle(&leases, &messages[0], park()).await;
    assert_eq!(stage.letter(&messages[0]).await.status, DeadLetterStatus::Parked, "it may become one again");
}
