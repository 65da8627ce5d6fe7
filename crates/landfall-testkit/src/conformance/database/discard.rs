//! Discarding and editing dead letters.

use landfall_core::adapter::{Admission, Decision};
use landfall_core::{
    DeadLetterFilter, DeadLetterStats, DeadLetterStatus, DeadLetters, Discarded, ErrorCode, ErrorKind, Limits,
    OpenLetters, OutboxView,
};

use super::{AuditRow, DatabaseFixture, Harness};
use crate::conformance::sample::{group, ids, keyed, series, topic};

pub async fn discarded_message_frees_its_key_in_order<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    harness.park_with_successors(&stock, &messages[..3]).await;
    assert!(harness.drain(&stock).await.is_empty(), "successors of a parked message are handled");
    harness.discard(&messages[0]).await;
    assert_eq!(harness.handle(&stock, &messages[3]).await, Admission::Held, "live traffic overtakes the successors");
    assert_eq!(harness.drain(&stock).await, ids(&messages[1..]));
    assert_eq!(harness.handle(&stock, &messages[0]).await, Admission::Duplicate, "a discarded message takes effect");
    assert_eq!(harness.handle(&stock, &keyed("a", 5)).await, Admission::Fresh);

    let letter = harness.letter(&messages[0]).await;
    assert_eq!(letter.status, DeadLetterStatus::Discarded);
    let audited = AuditRow { actor: "alice".into(), action: "discard".into(), message_id: messages[0].id };
    assert_eq!(harness.audit().await.iter().filter(|row| **row == audited).count(), 1);
    let stats = harness.database.dead_letter_stats().await.unwrap();
    assert_eq!((stats.done, stats.discarded, stats.needing_action()), (3, 1, 0));
}

pub async fn discarding_the_only_letter_frees_the_key<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park(&stock, &messages[0]).await;
    harness.discard(&messages[0]).await;
    assert_eq!(harness.handle(&stock, &messages[1]).await, Admission::Fresh);
}

pub async fn discarded_relay_message_lets_its_successors_pass<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.enqueue(&messages[..2]).await;
    let leases = harness.lease_all("one").await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &messages[0], decision).await;
    harness.enqueue(&messages[2..]).await;
    // Reading and settling make PostgreSQL set the successors aside.
    assert!(harness.due(&leases).await.is_empty(), "successors of a parked message are due");
    let other = keyed("b", 1);
    harness.enqueue(std::slice::from_ref(&other)).await;
    harness.settle(&leases, &other, Decision::Published).await;

    harness.discard(&messages[0]).await;
    for message in &messages[1..] {
        harness.settle(&leases, message, Decision::Published).await;
    }
    let stats = harness.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.parked, stats.published), (0, 0, 3));
}

pub async fn only_parked_letters_are_discarded<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park_with_successors(&stock, &messages).await;
    let waiting = harness.letter(&messages[1]).await.id;
    let discard = async |filter| harness.database.discard(&filter, "why", "alice").await.unwrap();
    let one = DeadLetterFilter { id: Some(waiting), ..Default::default() };
    assert_eq!(discard(one).await, Discarded { discarded: vec![], skipped: vec![waiting] });
    let parked = harness.letter(&messages[0]).await.id;
    let all = discard(DeadLetterFilter::default()).await;
    assert_eq!(all, Discarded { discarded: vec![parked], skipped: vec![waiting] });
    let again = discard(DeadLetterFilter { id: Some(parked), ..Default::default() }).await;
    assert_eq!(again, Discarded { discarded: vec![], skipped: vec![parked] });
    assert!(harness.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap().redriven.is_empty());
}

pub async fn edited_payload_is_redriven_and_the_original_kept<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    harness.park(&stock, &message).await;
    let id = harness.letter(&message).await.id;
    harness.database.edit(id, b"first", "alice").await.unwrap();
    harness.database.edit(id, b"second", "alice").await.unwrap();
    let letter = harness.letter(&message).await;
    assert_eq!(&letter.payload[..], b"second");
    assert_eq!(letter.original_payload, Some(message.payload.clone()), "the original is the payload before all edits");
    harness.redrive(&message).await;
    let item = harness.drain_one(&stock).await.unwrap();
    assert_eq!((item.message.id, &item.message.payload[..]), (message.id, &b"second"[..]));

    // A message of the relay goes back to the outbox with the new payload.
    let relayed = keyed("b", 1);
    harness.enqueue(std::slice::from_ref(&relayed)).await;
    let leases = harness.lease_all("one").await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &relayed, decision).await;
    harness.database.edit(harness.letter(&relayed).await.id, b"small", "alice").await.unwrap();
    harness.redrive(&relayed).await;
    let due = harness.due(&leases).await;
    assert_eq!(&due[0].message.as_ref().unwrap().payload[..], b"small");
    let edits = harness.audit().await.into_iter().filter(|row| row.action == "edit" && row.actor == "alice");
    assert_eq!(edits.count(), 3);
}

pub async fn only_parked_letters_are_edited<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park_with_successors(&stock, &messages).await;
    let waiting = harness.letter(&messages[1]).await.id;
    let error = harness.database.edit(waiting, b"x", "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = harness.database.edit(i64::MAX, b"x", "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let parked = harness.letter(&messages[0]).await.id;
    let large = vec![0; Limits::default().payload_bytes + 1];
    let error = harness.database.edit(parked, &large, "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(harness.letter(&messages[0]).await.original_payload, None);
}

pub async fn open_letters_are_counted_by_topic_and_group<F: DatabaseFixture>(harness: Harness<F>) {
    harness.park_with_successors(&group("stock"), &series("a", 3)).await;
    harness.park(&group("mailer"), &keyed("a", 1)).await;
    let discarded = keyed("b", 1);
    harness.park(&group("mailer"), &discarded).await;
    harness.discard(&discarded).await;
    let stats = |parked, waiting| DeadLetterStats { parked, waiting, ..Default::default() };
    let expected = [("mailer", stats(1, 0)), ("stock", stats(1, 2))];
    let expected =
        expected.map(|(name, stats)| OpenLetters { topic: topic("orders"), group: Some(group(name)), stats });
    assert_eq!(harness.database.open_letters().await.unwrap(), expected);
}
