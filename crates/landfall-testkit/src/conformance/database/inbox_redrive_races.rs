//! A drain beside another drain and beside live traffic: nothing twice, nothing out of order, nothing left behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_core::{Admission, Database, DeadLetterFilter, DeadLetters, GroupName, Inbox, Message, Parking, Result};

use super::stage::{A_MOMENT, SOON, drain_one, setback};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{failure, group, ids, keyed, series};

/// Drains on an instance of its own until nothing is open any more; `None` in between only means that the other one
/// is at work.
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

pub async fn two_instances_drain_every_message_once_and_in_order<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    for key in ["a", "b", "c", "d", "e"] {
        stage.park_with_successors(&stock, &series(key, 6)).await;
    }
    let answer = stage.database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();
    assert_eq!((answer.redriven.len(), answer.skipped.len()), (5, 25));

    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        tasks.spawn(drain_everything(stage.fixture.clone(), stage.second().await, stock.clone()));
    }
    tasks.join_all().await;

    let mut applied: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for effect in stage.effects().await {
        applied.entry(effect.key.unwrap()).or_default().push(effect.sequence.unwrap());
    }
    assert_eq!(applied.len(), 5);
    for (key, sequences) in applied {
        assert_eq!(sequences, [1, 2, 3, 4, 5, 6], "key {key}");
    }
}

pub async fn a_successor_waits_for_a_handler_elsewhere<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().concurrent_writers {
        return;
    }
    let (stock, messages) = (group("stock"), series("a", 2));
    stage.park_with_successors(&stock, &messages).await;
    stage.redrive(&messages[0]).await;
    let mut elsewhere = stage.database.begin().await.unwrap();
    let item = stage.database.next_redriven(&mut elsewhere, &stock, &[]).await.unwrap().unwrap();
    assert_eq!(item.message.id, messages[0].id);

    let meanwhile = tokio::time::timeout(SOON, stage.drain_one(&stock)).await.expect("nobody waits for a handler");
    assert!(meanwhile.is_none(), "a successor was handed out while its predecessor is being handled");
    stage.database.complete_redriven(&mut elsewhere, &item).await.unwrap();
    stage.database.commit(elsewhere).await.unwrap();
    assert_eq!(stage.drain(&stock).await, ids(&messages[1..]));
}

/// The drain's last step frees the key while a live message asks whether it is held. Whatever the answer is, the
/// message must take effect: at once, or by the drain.
pub async fn live_traffic_that_meets_the_end_of_a_drain_is_not_stuck<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().concurrent_writers {
        return;
    }
    let (stock, messages) = (group("stock"), series("a", 2));
    stage.park(&stock, &messages[0]).await;
    stage.redrive(&messages[0]).await;
    let mut drain = stage.database.begin().await.unwrap();
    let item = stage.database.next_redriven(&mut drain, &stock, &[]).await.unwrap().unwrap();
    stage.fixture.insert_effect(&mut drain, &(&item.message).into()).await;
    stage.database.complete_redriven(&mut drain, &item).await.unwrap();

    let (fixture, second, live) = (stage.fixture.clone(), stage.second().await, messages[1].clone());
    let live_group = stock.clone();
    let mut traffic = tokio::spawn(async move {
        let mut transaction = second.begin().await.unwrap();
        let admission = second.admit(&mut transaction, &live_group, &live, None).await.unwrap();
        if admission == Admission::Fresh {
            fixture.insert_effect(&mut transaction, &(&live).into()).await;
        }
        second.commit(transaction).await.unwrap();
    });
    // It either waits for the drain or is done by itself; both are fine.
    let early = tokio::time::timeout(A_MOMENT, &mut traffic).await;
    stage.database.commit(drain).await.unwrap();
    match early {
        Ok(ended) => ended.unwrap(),
        Err(_) => tokio::time::timeout(SOON, traffic).await.expect("live traffic goes on").unwrap(),
    }
    stage.drain(&stock).await;
    let applied: Vec<_> = stage.effects().await.iter().map(|effect| effect.sequence).collect();
    assert_eq!(applied, [Some(1), Some(2)]);
    assert_eq!(stage.handle(&stock, &keyed("a", 3)).await, Admission::Fresh, "the key is free");
}

/// The other way round: a live message was told that its key is held and has not committed yet when the drain takes
/// its last step, which therefore was not the last.
pub async fn a_message_held_during_the_last_step_of_a_drain_is_drained<F: DatabaseFixture>(stage: Stage<F>) {
    if !F::capabilities().concurrent_writers {
        return;
    }
    let (stock, messages) = (group("stock"), series("a", 2));
    stage.park(&stock, &messages[0]).await;
    stage.redrive(&messages[0]).await;
    let mut live = stage.database.begin().await.unwrap();
    let admission = stage.database.admit(&mut live, &stock, &messages[1], None).await.unwrap();
    assert_eq!(admission, Admission::Held);

    let (fixture, second, drain_group) = (stage.fixture.clone(), stage.second().await, stock.clone());
    let mut drain = tokio::spawn(async move { drain_one(&*fixture, &second, &drain_group).await.is_some() });
    let early = tokio::time::timeout(A_MOMENT, &mut drain).await;
    stage.database.commit(live).await.unwrap();
    let drained = match early {
        Ok(ended) => ended.unwrap(),
        Err(_) => tokio::time::timeout(SOON, drain).await.expect("the drain goes on").unwrap(),
    };
    assert!(drained, "the redriven message was there to be handled");
    assert_eq!(stage.drain(&stock).await, ids(&messages[1..]), "the held message is not left behind");
    assert_eq!(stage.handle(&stock, &keyed("a", 3)).await, Admission::Fresh, "the key is free");
}

/// A consumer, and two who redrive and drain whatever it parks, all on one key: every seventh message fails for good, and
/// every fifth try of a drain once more.
pub async fn a_redrive_that_races_live_traffic_on_one_key_keeps_its_order<F: DatabaseFixture>(stage: Stage<F>) {
    const MESSAGES: i64 = 100;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(live_traffic(stage.fixture.clone(), stage.second().await, MESSAGES));
    for _ in 0..2 {
        tasks.spawn(redrive_until(stage.fixture.clone(), stage.second().await, MESSAGES));
    }
    tokio::time::timeout(4 * SOON, tasks.join_all()).await.expect("everything takes effect in the end");
    let applied: Vec<_> = stage.effects().await.iter().filter_map(|effect| effect.sequence).collect();
    assert_eq!(applied, (1..=MESSAGES).collect::<Vec<_>>());
    assert_eq!(stage.handle(&group("stock"), &keyed("a", MESSAGES + 1)).await, Admission::Fresh, "the key is free");
}

/// What the database rolled back (a deadlock) is done again.
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
