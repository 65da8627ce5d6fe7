//! A message that failed and is tried again by itself: kept in the database meanwhile, its key behind it.

use std::time::Duration;

use landfall_core::{Admission, Database, DeadLetterFilter, DeadLetterStatus, DeadLetters, Hold, Inbox, Parking};

use super::stage::{LONG, SOON, drain_one};
use super::{DatabaseFixture, Effect, Stage};
use crate::conformance::sample::{elaborate, failure, group, ids, keyed, keyless, series};
use crate::eventually;

/// Long enough for a few statements on a busy machine, and short enough to wait for.
const A_WHILE: Duration = Duration::from_millis(300);

async fn handled_in_time<F: DatabaseFixture>(stage: &Stage<F>, count: usize) -> Vec<landfall_core::MessageId> {
    let (stock, mut handled) = (group("stock"), Vec::new());
    eventually(SOON, "what is delayed is handled", async || {
        handled.extend(stage.drain(&stock).await);
        handled.len() >= count
    })
    .await;
    handled
}

pub async fn what_is_delayed_is_handled_when_its_time_has_come_and_not_before<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, later, sooner) = (group("stock"), keyless(), elaborate());
    stage.delay(&stock, &later, Hold::Nothing, LONG).await;
    assert!(stage.drain_one(&stock).await.is_none(), "its time has not come");
    stage.delay(&stock, &sooner, Hold::Key, Duration::ZERO).await;
    let letter = stage.letter(&sooner).await;
    assert_eq!((letter.status, letter.attempts), (DeadLetterStatus::Delayed, 1));
    assert!(letter.retry_at.is_some() && stage.letter(&later).await.retry_at > letter.retry_at);

    let item = stage.drain_one(&stock).await.expect("its time has come");
    assert_eq!((&item.message, item.attempts, item.redrives), (&sooner, 1, 0));
    assert_eq!(item.origin.map(|place| (place.partition, place.offset)), Some((3, 42)));
    let letter = stage.letter(&sooner).await;
    assert_eq!((letter.status, letter.retry_at), (DeadLetterStatus::Done, None));
    assert!(stage.drain_one(&stock).await.is_none(), "the other is still to wait");
    let stats = stage.database.dead_letter_stats().await.unwrap();
    assert_eq!((stats.delayed, stats.done, stats.parked), (1, 1, 0));
}

pub async fn a_delayed_message_holds_its_key_and_its_successors_follow_it<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 4));
    stage.delay(&stock, &messages[0], Hold::Key, A_WHILE).await;
    for message in &messages[1..3] {
        assert_eq!(stage.handle(&stock, message).await, Admission::Held);
    }
    assert_eq!(stage.handle(&stock, &keyed("b", 1)).await, Admission::Fresh, "another key flows");
    assert_eq!(handled_in_time(&stage, 3).await, ids(&messages[..3]));
    assert_eq!(stage.handle(&stock, &messages[3]).await, Admission::Fresh, "and the key is free");
    let effects = stage.effects().await;
    let of_key: Vec<_> = effects.into_iter().filter(|effect| effect.key.as_deref() == Some("a")).collect();
    assert_eq!(of_key, messages.iter().map(Effect::from).collect::<Vec<_>>());
}

pub async fn a_message_delayed_aside_holds_nobody<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    stage.delay(&stock, &messages[0], Hold::Nothing, LONG).await;
    stage.delay(&stock, &messages[1], Hold::Nothing, Duration::ZERO).await;
    assert_eq!(stage.handle(&stock, &messages[2]).await, Admission::Fresh);
    assert_eq!(stage.drain(&stock).await, ids(&messages[1..2]), "nor does it wait for another");
}

pub async fn a_duplicate_of_what_is_delayed_is_a_duplicate<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    stage.delay(&stock, &message, Hold::Key, LONG).await;
    assert_eq!(stage.handle(&stock, &message).await, Admission::Duplicate);
    assert!(stage.effects().await.is_empty());
}

pub async fn a_delayed_message_may_be_delayed_again_and_in_the_end_parked<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    stage.delay(&stock, &messages[0], Hold::Key, Duration::ZERO).await;
    assert_eq!(stage.handle(&stock, &messages[1]).await, Admission::Held);
    assert_eq!(stage.fail_for(&stock, Duration::ZERO).await.attempts, 1);
    assert_eq!(stage.fail_one(&stock).await.attempts, 2);
    let letter = stage.letter(&messages[0]).await;
    assert_eq!((letter.status, letter.attempts, letter.retry_at), (DeadLetterStatus::Parked, 3, None));
    assert!(stage.drain_one(&stock).await.is_none(), "from now on it is a person's");
    stage.redrive(&messages[0]).await;
    assert_eq!(stage.drain(&stock).await, ids(&messages));
    let audit: Vec<_> = stage.audit().await.into_iter().map(|row| row.action).collect();
    assert_eq!(audit, ["delay", "delay", "park", "redrive", "effect", "effect"]);
}

pub async fn a_rolled_back_delay_leaves_nothing<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message, failure) = (group("stock"), keyed("a", 1), failure());
    let mut transaction = stage.database.begin().await.unwrap();
    assert_eq!(stage.database.admit(&mut transaction, &stock, &message, None).await.unwrap(), Admission::Fresh);
    let parking = Parking { again: Some(Duration::ZERO), ..Parking::with_key(1, &failure) };
    stage.database.park(&mut transaction, &stock, &message, None, parking).await.unwrap();
    drop(transaction);
    assert_eq!(stage.handle(&stock, &message).await, Admission::Fresh);
    assert!(stage.drain_one(&stock).await.is_none() && stage.letters().await.is_empty());
}

pub async fn a_successor_may_be_delayed_in_its_turn<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, messages) = (group("stock"), series("a", 3));
    stage.delay(&stock, &messages[0], Hold::Key, Duration::ZERO).await;
    for message in &messages[1..] {
        assert_eq!(stage.handle(&stock, message).await, Admission::Held);
    }
    assert_eq!(stage.drain_one(&stock).await.unwrap().message.id, messages[0].id);
    let failed = stage.fail_for(&stock, A_WHILE).await;
    assert_eq!((failed.message.id, failed.attempts), (messages[1].id, 0));
    assert_eq!(stage.letter(&messages[1]).await.status, DeadLetterStatus::Delayed);
    assert_eq!(stage.letter(&messages[2]).await.status, DeadLetterStatus::Waiting);
    assert_eq!(handled_in_time(&stage, 2).await, ids(&messages[1..]));
}

pub async fn a_person_cannot_redrive_what_is_delayed<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    stage.delay(&stock, &message, Hold::Key, LONG).await;
    let answer = stage.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert_eq!((answer.redriven.len(), answer.skipped.len()), (0, 1));
    assert_eq!(stage.letter(&message).await.status, DeadLetterStatus::Delayed);
}

pub async fn what_is_delayed_and_due_is_handled_once_by_two<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    let messages: Vec<_> = (0..12).map(|n| keyed(&format!("key-{}", n % 3), n)).collect();
    for message in &messages[..3] {
        stage.delay(&stock, message, Hold::Key, A_WHILE).await;
    }
    for message in &messages[3..] {
        assert_eq!(stage.handle(&stock, message).await, Admission::Held);
    }
    let second = stage.second().await;
    let drain = async |database: &F::Database| {
        eventually(SOON, "everything is done", async || {
            while drain_one(&*stage.fixture, database, &stock).await.is_some() {}
            database.dead_letter_stats().await.unwrap().done == messages.len() as u64
        })
        .await;
    };
    tokio::join!(drain(&stage.database), drain(&second));
    let effects = stage.effects().await;
    assert_eq!(effects.len(), messages.len(), "each once");
    for key in 0..3 {
        let name = format!("key-{key}");
        let order: Vec<_> = effects.iter().filter(|effect| effect.key.as_deref() == Some(&*name)).cloned().collect();
        let sent: Vec<_> = messages.iter().skip(key).step_by(3).map(Effect::from).collect();
        assert_eq!(order, sent, "in order");
    }
}
