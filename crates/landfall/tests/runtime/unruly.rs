//! Whatever a broker may do to its consumers: copies in several members at once, delays, overtaking, lost
//! acknowledgements, memberships lost in the middle of a batch. Effects happen once and per key in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{Consumer, Early, Options, SequenceCheck, plain};
use landfall::{Backoff, Broker, DeadLetterFilter, DeadLetterStatus, Message};
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::batches::apply;
use crate::ground::{Ground, PATIENCE, QUICK, group, message, options, topic};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(
    a_consumer_in_batches_keeps_order_and_does_nothing_twice,
    two_members_that_check_numbers_bring_any_disorder_in_order,
);

const KEYS: i64 = 6;
const EACH: i64 = 20;

/// Twenty messages for each of six keys; some fail at first, and with `poison` two never work until they are redriven.
fn messages(poison: bool) -> Vec<Message> {
    let mut messages = Vec::new();
    for n in 1..=EACH {
        for key in 0..KEYS {
            let kind = match (key, n) {
                (0 | 3, 8) if poison => "mended",
                (_, n) if (n + key) % 9 == 0 => "flaky",
                _ => "good",
            };
            messages.push(message(&format!("key-{key}"), n, kind));
        }
    }
    messages
}

/// Ends when nothing can take effect any more, and then each key has each number once, in order.
async fn judge<D: Place>(ground: &Ground<D>, broker: &ChaosBroker, seed: u64) {
    ground.effects_become((KEYS * EACH) as usize).await;
    broker.heal();
    eventually(PATIENCE, "no copy is left", async || {
        ground.broker.unfinished(&topic(), &group()) == 0 && broker.unacked_duplicates() == 0
    })
    .await;
    let mut effects: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for effect in ground.database.effects().await {
        effects.entry(effect.key.unwrap()).or_default().extend(effect.sequence);
    }
    for (key, numbers) in &effects {
        assert_eq!(numbers, &(1..=EACH).collect::<Vec<_>>(), "{key}, seed {seed}, {:?}", broker.counts());
    }
    assert_eq!(effects.len() as i64, KEYS);
}

async fn a_consumer_in_batches_keeps_order_and_does_nothing_twice<D: Place>(ground: Ground<D>) {
    let troubles = ChaosOptions::everything(rand::random_range(0..1_000_000));
    let (seed, broker) = (troubles.seed, ChaosBroker::around(ground.broker.clone(), troubles));
    ground.publish(&messages(true)).await;
    let options = Options { batch: 10, concurrency: 4, ..options() };
    let (database, shared) = (ground.database.clone(), Arc::new(broker.clone()) as Arc<dyn Broker>);
    let consumer = Consumer::new(database, shared, topic(), group(), plain(mended::<D>), options);
    let stop = CancellationToken::new();
    let consumer = tokio::spawn(consumer.run(stop.clone()));
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    eventually(PATIENCE, "both keys are parked", async || ground.database.find(&parked, 10).await.unwrap().len() == 2)
        .await;
    ground.database.redrive(&parked, "test").await.unwrap();
    judge(&ground, &broker, seed).await;
    stop.cancel();
    consumer.await.unwrap().unwrap();
}

/// Works only after it was redriven: by then its tries have been counted.
async fn mended<D: Place>(context: landfall::consume::Context<'_, D>) -> Result<(), landfall::Failure> {
    let works = context.attempt > QUICK.max_attempts || context.message.kind.as_str() != "mended";
    apply(context).await?;
    if works { Ok(()) } else { Err(landfall::Failure::retry("not yet")) }
}

async fn two_members_that_check_numbers_bring_any_disorder_in_order<D: Place>(ground: Ground<D>) {
    let seed = rand::random_range(0..1_000_000);
    // What waits for its predecessors looks again and again, so there are few copies and the looks are far apart.
    let troubles = ChaosOptions { within_key: true, duplicates_max: 1, ..ChaosOptions::everything(seed) };
    let broker = ChaosBroker::around(ground.broker.clone(), troubles);
    ground.publish(&messages(false)).await;
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(PATIENCE) };
    let stop = CancellationToken::new();
    // Members that meet in the same entity may deadlock; that is tried again, and is not what is tested.
    let (first, cap) = (Duration::from_millis(50), Duration::from_millis(200));
    let backoff = Backoff { first, cap, max_attempts: 50 };
    let members = [1, 10].map(|batch| {
        let options = Options { batch, concurrency: 4, backoff, ..options() };
        let (database, shared) = (ground.database.clone(), Arc::new(broker.clone()) as Arc<dyn Broker>);
        let consumer = Consumer::new(database, shared, topic(), group(), plain(apply::<D>), options);
        tokio::spawn(consumer.in_sequence(check).run(stop.clone()))
    });
    judge(&ground, &broker, seed).await;
    stop.cancel();
    for member in members {
        member.await.unwrap().unwrap();
    }
}
