//! An adverse broker: duplicates in several members at once, delays, reordering, lost acknowledgements, memberships
//! lost in the middle of a batch. Effects happen once and per key in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{Consumer, Early, Options, SequenceCheck, plain};
use landfall::{Backoff, Broker, DeadLetterFilter, DeadLetterStatus, Message};
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::{assert_no_violation, eventually};
use tokio_util::sync::CancellationToken;

use crate::batches::apply;
use crate::database::TestDatabase;
use crate::fixture::{Fixture, QUICK, TIMEOUT, group, message, options, topic};
use crate::on_every_database;

on_every_database!(
    batched_consumer_keeps_order_without_duplicate_effects,
    sequence_checks_restore_order_across_two_members,
);

const KEYS: i64 = 6;
const EACH: i64 = 20;

/// Twenty messages for each of six keys. Some fail at first; with `poison`, two fail until they are redriven.
fn messages(poison: bool) -> Vec<Message> {
    let mut messages = Vec::new();
    for n in 1..=EACH {
        for key in 0..KEYS {
            let kind = match (key, n) {
                (0 | 3, 8) if poison => "repaired",
                (_, n) if (n + key) % 9 == 0 => "flaky",
                _ => "good",
            };
            messages.push(message(&format!("key-{key}"), n, kind));
        }
    }
    messages
}

/// Waits until every delivery is settled, and asserts that each key has each number once, in order.
async fn assert_ordered_once<D: TestDatabase>(fixture: &Fixture<D>, broker: &ChaosBroker, seed: u64) {
    fixture.effects_become((KEYS * EACH) as usize).await;
    broker.heal();
    eventually(TIMEOUT, "every duplicate is settled", async || {
        fixture.broker.unfinished(&topic(), &group()) == 0 && broker.unacked_duplicates() == 0
    })
    .await;
    let mut effects: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for effect in fixture.database.effects().await {
        effects.entry(effect.key.unwrap()).or_default().extend(effect.sequence);
    }
    let expected: Vec<i64> = (1..=EACH).collect();
    let is_clean = effects.len() as i64 == KEYS && effects.values().all(|numbers| *numbers == expected);
    assert_no_violation(is_clean, format!("seed {seed}, {:?}, {effects:?}", broker.counts()));
}

async fn batched_consumer_keeps_order_without_duplicate_effects<D: TestDatabase>(fixture: Fixture<D>) {
    let troubles = ChaosOptions::everything(rand::random_range(0..1_000_000));
    let (seed, broker) = (troubles.seed, ChaosBroker::around(fixture.broker.clone(), troubles));
    fixture.publish(&messages(true)).await;
    let options = Options { batch: 10, concurrency: 4, ..options() };
    let (database, shared) = (fixture.database.clone(), Arc::new(broker.clone()) as Arc<dyn Broker>);
    let consumer = Consumer::builder(database, shared)
        .topic(topic())
        .group(group())
        .handler(plain(succeeds_after_redrive::<D>))
        .options(options)
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    let consumer = tokio::spawn(consumer.run(stop.clone()));
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    eventually(TIMEOUT, "both keys are parked", async || fixture.database.find(&parked, 10).await.unwrap().len() == 2)
        .await;
    fixture.database.redrive(&parked, "test").await.unwrap();
    assert_ordered_once(&fixture, &broker, seed).await;
    stop.cancel();
    consumer.await.unwrap().unwrap();
}

/// Succeeds only after a redrive, when all attempts have been counted.
async fn succeeds_after_redrive<D: TestDatabase>(
    context: landfall::consume::Context<'_, D>,
) -> Result<(), landfall::Failure> {
    let works = context.attempt > QUICK.max_attempts || context.message.kind.as_str() != "repaired";
    apply(context).await?;
    if works { Ok(()) } else { Err(landfall::Failure::retry("not yet")) }
}

async fn sequence_checks_restore_order_across_two_members<D: TestDatabase>(fixture: Fixture<D>) {
    let seed = rand::random_range(0..1_000_000);
    // An early message polls for its predecessors, so there are few duplicates and long pauses.
    let troubles = ChaosOptions { within_key: true, duplicates_max: 1, ..ChaosOptions::everything(seed) };
    let broker = ChaosBroker::around(fixture.broker.clone(), troubles);
    fixture.publish(&messages(false)).await;
    let check = SequenceCheck::Consecutive { first: Some(1), early: Early::Wait(TIMEOUT) };
    let stop = CancellationToken::new();
    // Members that work on the same entity may deadlock; those retries are not the subject of this test.
    let (first, cap) = (Duration::from_millis(50), Duration::from_millis(200));
    let backoff = Backoff { first, cap, max_attempts: 50 };
    let members = [1, 10].map(|batch| {
        let options = Options { batch, concurrency: 4, backoff, ..options() };
        let (database, shared) = (fixture.database.clone(), Arc::new(broker.clone()) as Arc<dyn Broker>);
        let consumer = Consumer::builder(database, shared)
            .topic(topic())
            .group(group())
            .handler(plain(apply::<D>))
            .options(options)
            .sequence_check(check)
            .build()
            .unwrap();
        tokio::spawn(consumer.run(stop.clone()))
    });
    assert_ordered_once(&fixture, &broker, seed).await;
    stop.cancel();
    for member in members {
        member.await.unwrap().unwrap();
    }
}
