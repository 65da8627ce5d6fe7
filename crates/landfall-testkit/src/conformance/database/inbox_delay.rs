//! Delayed messages: failed messages that wait in the database for an automatic retry and hold their key.

use std::time::Duration;

use landfall_core::adapter::{Admission, Hold, Parking};
use landfall_core::{Database, DeadLetterFilter, DeadLetterStatus, DeadLetters, Inbox};

use super::harness::{LONG, TIMEOUT, drain_one};
use super::{DatabaseFixture, Effect, Harness};
use crate::conformance::sample::{elaborate, failure, group, ids, keyed, keyless, series};
use crate::eventually;

/// Long enough for a few statements on a busy machine, and short enough to wait for.
const RETRY_DELAY: Duration = Duration::from_millis(300);

async fn drain_until<F: DatabaseFixture>(harness: &Harness<F>, count: usize) -> Vec<landfall_core::MessageId> {
    let (stock, mut handled) = (group("stock"), Vec::new());
    eventually(TIMEOUT, "the delayed messages are handled", async || {
        handled.extend(harness.drain(&stock).await);
        handled.len() >= count
    })
    .await;
    handled
}

pub async fn delayed_message_is_handled_when_due_and_not_before<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, later, sooner) = (group("stock"), keyless(), elaborate());
    harness.delay(&stock, &later, Hold::Nothing, LONG).await;
    assert!(harness.drain_one(&stock).await.is_none(), "a delayed message was handled before it was due");
    harness.delay(&stock, &sooner, Hold::Key, Duration::ZERO).await;
    let letter = harness.letter(&sooner).await;
    assert_eq!((letter.status, letter.attempts), (DeadLetterStatus::Delayed, 1));
    assert!(letter.retry_at.is_some() && harness.letter(&later).await.retry_at > letter.retry_at);

    let item = harness.drain_one(&stock).await.expect("the due message was not handled");
    assert_eq!((&item.message, item.attempts, item.redrives), (&sooner, 1, 0));
    assert_eq!(item.origin.map(|origin| (origin.partition, origin.offset)), Some((3, 42)));
    let letter = harness.letter(&sooner).await;
    assert_eq!((letter.status, letter.retry_at), (DeadLetterStatus::Done, None));
    assert!(harness.drain_one(&stock).await.is_none(), "the other message was handled before it was due");
    let stats = harness.database.dead_letter_stats().await.unwrap();
    assert_eq!((stats.delayed, stats.done, stats.parked), (1, 1, 0));
}

pub async fn delayed_message_holds_its_key_and_successors_follow<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    harness.delay(&stock, &messages[0], Hold::Key, RETRY_DELAY).await;
    for message in &messages[1..3] {
        assert_eq!(harness.handle(&stock, message).await, Admission::Held);
    }
    assert_eq!(harness.handle(&stock, &keyed("b", 1)).await, Admission::Fresh, "another key is blocked");
    assert_eq!(drain_until(&harness, 3).await, ids(&messages[..3]));
    assert_eq!(harness.handle(&stock, &messages[3]).await, Admission::Fresh, "the key is still held");
    let effects = harness.effects().await;
    let of_key: Vec<_> = effects.into_iter().filter(|effect| effect.key.as_deref() == Some("a")).collect();
    assert_eq!(of_key, messages.iter().map(Effect::from).collect::<Vec<_>>());
}

pub async fn message_delayed_without_hold_blocks_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    harness.delay(&stock, &messages[0], Hold::Nothing, LONG).await;
    harness.delay(&stock, &messages[1], Hold::Nothing, Duration::ZERO).await;
    assert_eq!(harness.handle(&stock, &messages[2]).await, Admission::Fresh);
    assert_eq!(harness.drain(&stock).await, ids(&messages[1..2]), "a message without hold waited for another");
}

pub async fn delayed_message_is_deduplicated<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    harness.delay(&stock, &message, Hold::Key, LONG).await;
    assert_eq!(harness.handle(&stock, &message).await, Admission::Duplicate);
    assert!(harness.effects().await.is_empty());
}

pub async fn delayed_message_can_be_delayed_again_then_parked<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.delay(&stock, &messages[0], Hold::Key, Duration::ZERO).await;
    assert_eq!(harness.handle(&stock, &messages[1]).await, Admission::Held);
    assert_eq!(harness.fail_for(&stock, Duration::ZERO).await.attempts, 1);
    assert_eq!(harness.fail_one(&stock).await.attempts, 2);
    let letter = harness.letter(&messages[0]).await;
    assert_eq!((letter.status, letter.attempts, letter.retry_at), (DeadLetterStatus::Parked, 3, None));
    assert!(harness.drain_one(&stock).await.is_none(), "a parked message was handled without a redrive");
    harness.redrive(&messages[0]).await;
    assert_eq!(harness.drain(&stock).await, ids(&messages));
    let audit: Vec<_> = harness.audit().await.into_iter().map(|row| row.action).collect();
    assert_eq!(audit, ["delay", "queue", "delay", "park", "redrive", "effect", "effect"]);
}

pub async fn rolled_back_delay_leaves_nothing<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message, failure) = (group("stock"), keyed("a", 1), failure());
    let mut transaction = harness.database.begin().await.unwrap();
    assert_eq!(harness.database.admit(&mut transaction, &stock, &message, None).await.unwrap(), Admission::Fresh);
    let parking = Parking { again: Some(Duration::ZERO), ..Parking::with_key(1, &failure) };
    harness.database.park(&mut transaction, &stock, &message, None, parking).await.unwrap();
    drop(transaction);
    assert_eq!(harness.handle(&stock, &message).await, Admission::Fresh);
    assert!(harness.drain_one(&stock).await.is_none() && harness.letters().await.is_empty());
}

pub async fn successor_of_a_delayed_message_can_be_delayed<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    harness.delay(&stock, &messages[0], Hold::Key, Duration::ZERO).await;
    for message in &messages[1..] {
        assert_eq!(harness.handle(&stock, message).await, Admission::Held);
    }
    assert_eq!(harness.drain_one(&stock).await.unwrap().message.id, messages[0].id);
    let failed = harness.fail_for(&stock, RETRY_DELAY).await;
    assert_eq!((failed.message.id, failed.attempts), (messages[1].id, 0));
    assert_eq!(harness.letter(&messages[1]).await.status, DeadLetterStatus::Delayed);
    assert_eq!(harness.letter(&messages[2]).await.status, DeadLetterStatus::Waiting);
    assert_eq!(drain_until(&harness, 2).await, ids(&messages[1..]));
}

pub async fn manual_redrive_skips_delayed_messages<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    harness.delay(&stock, &message, Hold::Key, LONG).await;
    let result = harness.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert_eq!((result.redriven.len(), result.skipped.len()), (0, 1));
    assert_eq!(harness.letter(&message).await.status, DeadLetterStatus::Delayed);
}

pub async fn two_consumers_handle_due_messages_once<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    let messages: Vec<_> = (0..12).map(|n| keyed(&format!("key-{}", n % 3), n)).collect();
    for message in &messages[..3] {
        harness.delay(&stock, message, Hold::Key, RETRY_DELAY).await;
    }
    for message in &messages[3..] {
        assert_eq!(harness.handle(&stock, message).await, Admission::Held);
    }
    let second = harness.second().await;
    let drain = async |database: &F::Database| {
        eventually(TIMEOUT, "all letters are done", async || {
            while drain_one(&*harness.fixture, database, &stock).await.is_some() {}
            database.dead_letter_stats().await.unwrap().done == messages.len() as u64
        })
        .await;
    };
    tokio::join!(drain(&harness.database), drain(&second));
    let effects = harness.effects().await;
    assert_eq!(effects.len(), messages.len(), "a message had more than one effect");
    for key in 0..3 {
        let name = format!("key-{key}");
        let order: Vec<_> = effects.iter().filter(|effect| effect.key.as_deref() == Some(&*name)).cloned().collect();
        let sent: Vec<_> = messages.iter().skip(key).step_by(3).map(Effect::from).collect();
        assert_eq!(order, sent, "out of order");
    }
}
