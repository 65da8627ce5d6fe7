//! Drains concurrent with other drains and live traffic: no duplicate, reordered or forgotten message.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_core::adapter::{Admission, Parking};
use landfall_core::{Database, DeadLetterFilter, DeadLetters, GroupName, Inbox, Message, Result};

use super::harness::{SHORT_WAIT, TIMEOUT, drain_one, setback};
use super::{DatabaseFixture, Harness};
use crate::VIOLATION;
use crate::conformance::sample::{failure, group, ids, keyed, series};

/// Drains until no letter is open. `None` in between means that another consumer is handling the next one.
async fn drain_everything<F: DatabaseFixture>(fixture: Arc<F>, database: F::Database, group: GroupName) {
    loop {
        while drain_one(&*fixture, &database, &group).await.is_some() {}
        let stats = database.dead_letter_stats().await.unwrap();
        if stats.parked + stats.waiting + stats.redriving == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

pub async fn two_consumers_drain_each_message_once_in_order<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for key in ["a", "b", "c", "d", "e"] {
        harness.park_with_successors(&stock, &series(key, 6)).await;
    }
    let result = harness.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert_eq!((result.redriven.len(), result.skipped.len()), (5, 25));

    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        tasks.spawn(drain_everything(harness.fixture.clone(), harness.second().await, stock.clone()));
    }
    tasks.join_all().await;

    let mut applied: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for effect in harness.effects().await {
        applied.entry(effect.key.unwrap()).or_default().push(effect.sequence.unwrap());
    }
    assert_eq!(applied.len(), 5);
    for (key, sequences) in applied {
        assert_eq!(sequences, [1, 2, 3, 4, 5, 6], "key {key}");
    }
}

pub async fn successor_waits_for_a_handler_in_another_process<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park_with_successors(&stock, &messages).await;
    harness.redrive(&messages[0]).await;
    let mut other_process = harness.database.begin().await.unwrap();
    let item = harness.database.next_redriven(&mut other_process, &stock, &[]).await.unwrap().unwrap();
    assert_eq!(item.message.id, messages[0].id);

    let meanwhile = tokio::time::timeout(TIMEOUT, harness.drain_one(&stock))
        .await
        .expect("next_redriven blocked on another handler");
    assert!(meanwhile.is_none(), "a successor was returned while its predecessor is being handled");
    harness.database.complete_redriven(&mut other_process, &item).await.unwrap();
    harness.database.commit(other_process).await.unwrap();
    assert_eq!(harness.drain(&stock).await, ids(&messages[1..]));
}

/// The last step of a drain frees the key while a live message checks whether it is held. Either way the message must
/// take effect: at once, or through the drain.
pub async fn live_message_at_the_end_of_a_drain_takes_effect<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park(&stock, &messages[0]).await;
    harness.redrive(&messages[0]).await;
    let mut drain = harness.database.begin().await.unwrap();
    let item = harness.database.next_redriven(&mut drain, &stock, &[]).await.unwrap().unwrap();
    harness.fixture.insert_effect(&mut drain, &(&item.message).into()).await;
    harness.database.complete_redriven(&mut drain, &item).await.unwrap();

    let (fixture, second, live) = (harness.fixture.clone(), harness.second().await, messages[1].clone());
    let live_group = stock.clone();
    let mut traffic = tokio::spawn(async move {
        let mut transaction = second.begin().await.unwrap();
        let admission = second.admit(&mut transaction, &live_group, &live, None).await.unwrap();
        if admission == Admission::Fresh {
            fixture.insert_effect(&mut transaction, &(&live).into()).await;
        }
        second.commit(transaction).await.unwrap();
    });
    // It may wait for the drain or finish before; both are correct.
    let early = tokio::time::timeout(SHORT_WAIT, &mut traffic).await;
    harness.database.commit(drain).await.unwrap();
    match early {
        Ok(ended) => ended.unwrap(),
        Err(_) => tokio::time::timeout(TIMEOUT, traffic).await.expect("the live message did not continue").unwrap(),
    }
    harness.drain(&stock).await;
    let applied: Vec<_> = harness.effects().await.iter().map(|effect| effect.sequence).collect();
    assert_eq!(applied, [Some(1), Some(2)]);
    assert_eq!(harness.handle(&stock, &keyed("a", 3)).await, Admission::Fresh, "the key is still held");
}

/// The reverse race: a live message is held and not yet committed when the drain takes what it believes is its last
/// step.
pub async fn message_held_during_the_last_drain_step_is_drained<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, messages) = (group("stock"), series("a", 2));
    harness.park(&stock, &messages[0]).await;
    harness.redrive(&messages[0]).await;
    let mut live = harness.database.begin().await.unwrap();
    let admission = harness.database.admit(&mut live, &stock, &messages[1], None).await.unwrap();
    assert_eq!(admission, Admission::Held);

    let (fixture, second, drain_group) = (harness.fixture.clone(), harness.second().await, stock.clone());
    let mut drain = tokio::spawn(async move { drain_one(&*fixture, &second, &drain_group).await.is_some() });
    let early = tokio::time::timeout(SHORT_WAIT, &mut drain).await;
    harness.database.commit(live).await.unwrap();
    let drained = match early {
        Ok(ended) => ended.unwrap(),
        Err(_) => tokio::time::timeout(TIMEOUT, drain).await.expect("the drain did not continue").unwrap(),
    };
    assert!(drained, "the redriven message was not handled");
    assert_eq!(harness.drain(&stock).await, ids(&messages[1..]), "the held message was forgotten");
    assert_eq!(harness.handle(&stock, &keyed("a", 3)).await, Admission::Fresh, "the key is still held");
}

/// One consumer and two redrivers on the same key: every seventh message is parked, and every fifth drain attempt fails
/// again.
pub async fn redrive_racing_live_traffic_keeps_key_order<F: DatabaseFixture>(harness: Harness<F>) {
    const MESSAGES: i64 = 100;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(live_traffic(harness.fixture.clone(), harness.second().await, MESSAGES));
    for _ in 0..2 {
        tasks.spawn(redrive_until(harness.fixture.clone(), harness.second().await, MESSAGES));
    }
    tokio::time::timeout(4 * TIMEOUT, tasks.join_all()).await.expect("not all messages took effect");
    let applied: Vec<_> = harness.effects().await.iter().filter_map(|effect| effect.sequence).collect();
    assert_eq!(applied, (1..=MESSAGES).collect::<Vec<_>>(), "{VIOLATION} effects of the key");
    assert_eq!(
        harness.handle(&group("stock"), &keyed("a", MESSAGES + 1)).await,
        Admission::Fresh,
        "the key is still held"
    );
}

/// Handles `count` messages. Repeats transactions that the database rolled back, as after a deadlock.
async fn live_traffic<F: DatabaseFixture>(fixture: Arc<F>, database: F::Database, count: i64) {
    for sequence in 1..=count {
        let message = keyed("a", sequence);
        while let Err(error) = handle(&*fixture, &database, &message).await {
            assert!(error.is_temporary(), "{error}");
        }
    }
}

async fn handle<F: DatabaseFixture>(fixture: &F, database: &F::Database, message: &Message) -> Result<()> {
    let (mut transaction, stock) = (database.begin().await?, group("stock"));
    if database.admit(&mut transaction, &stock, message, None).await? == Admission::Fresh {
        if message.sequence.is_some_and(|sequence| sequence % 7 == 0) {
            database.park(&mut transaction, &stock, message, None, Parking::with_key(1, &failure())).await?;
        } else {
            fixture.insert_effect(&mut transaction, &message.into()).await;
        }
    }
    database.commit(transaction).await
}

async fn redrive_until<F: DatabaseFixture>(fixture: Arc<F>, database: F::Database, count: i64) {
    for attempt in 1.. {
        if let Err(error) = redrive_one(&*fixture, &database, attempt % 5 == 0).await {
            assert!(error.is_temporary(), "{error}");
        }
        let mut transaction = database.begin().await.unwrap();
        let effects = fixture.effects(&mut transaction).await;
        database.commit(transaction).await.unwrap();
        if effects.len() as i64 >= count {
            return;
        }
    }
}

async fn redrive_one<F: DatabaseFixture>(fixture: &F, database: &F::Database, fails: bool) -> Result<()> {
    database.redrive(&DeadLetterFilter::default(), "alice").await?;
    let mut transaction = database.begin().await?;
    if let Some(item) = database.next_redriven(&mut transaction, &group("stock"), &[]).await? {
        if fails {
            database.park_redriven(&mut transaction, &item, setback(&item, &failure(), None)).await?;
        } else {
            fixture.insert_effect(&mut transaction, &(&item.message).into()).await;
            database.complete_redriven(&mut transaction, &item).await?;
        }
    }
    database.commit(transaction).await
}
