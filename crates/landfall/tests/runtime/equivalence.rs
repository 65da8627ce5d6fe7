//! Batches and single messages have the same effects, dead letters and inbox rows, for any history.

use std::collections::{BTreeMap, BTreeSet};

use landfall::Message;
use landfall::consume::plain;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::batches::{apply, batched};
use crate::database::TestDatabase;
use crate::fixture::{Fixture, message};
use crate::on_every_database;

on_every_database!(batches_match_single_messages);

/// Sequence numbers per key, in order.
pub(crate) type ByKey = BTreeMap<Option<String>, Vec<i64>>;

/// The expected effects and dead letters of a history: a duplicate changes nothing, and a message that fails holds its
/// key.
pub(crate) fn expected(history: &[Message]) -> (ByKey, ByKey) {
    let (mut effects, mut letters) = (BTreeMap::new(), BTreeMap::new());
    let (mut seen, mut held) = (BTreeSet::new(), BTreeSet::new());
    for message in history {
        if !seen.insert(message.id) {
            continue;
        }
        let key = message.key.as_ref().map(ToString::to_string);
        let fails = matches!(message.kind.as_str(), "poison" | "failing" | "panic");
        let ends = fails || held.contains(&key);
        if ends && key.is_some() {
            held.insert(key.clone());
        }
        let side: &mut BTreeMap<_, Vec<i64>> = if ends { &mut letters } else { &mut effects };
        side.entry(key).or_default().extend(message.sequence);
    }
    for side in [&mut effects, &mut letters] {
        side.entry(None).or_default().sort();
        side.retain(|_, sequences| !sequences.is_empty());
    }
    (effects, letters)
}

/// Keys with few and with many messages, keyless messages, near and far duplicates, and every kind of failure.
pub(crate) fn history(random: &mut StdRng) -> Vec<Message> {
    let mut history: Vec<Message> = Vec::new();
    for n in 0..random.random_range(40..160) {
        if !history.is_empty() && random.random_bool(0.3) {
            history.extend(history.choose(random).cloned());
            continue;
        }
        let kind = match random.random_range(0..40) {
            0 => "poison",
            1 => "failing",
            2 => "panic",
            3..6 => "flaky",
            _ => "good",
        };
        let mut message = message(&format!("key-{}", random.random_range(0..12_u32).pow(2) / 12), n, kind);
        if random.random_bool(0.2) {
            message.key = None;
        }
        history.push(message);
    }
    history
}

async fn batches_match_single_messages<D: TestDatabase>(first: Fixture<D>) {
    let seed = rand::random_range(0..1_000_000);
    let random = &mut StdRng::seed_from_u64(seed);
    // Every assertion prints the seed, so that a run can be repeated.
    let mut fixture = Some(first);
    for _ in 0..4 {
        let history = history(random);
        let (effects, letters) = expected(&history);
        let ends = effects.values().chain(letters.values()).map(Vec::len).sum();
        let mut one_by_one = None;
        for (batch, concurrency) in [(1, 1), (100, 1), (random.random_range(2..20), 4)] {
            let fixture = match fixture.take() {
                Some(fixture) => fixture,
                None => Fixture::<D>::new().await.unwrap(),
            };
            fixture.publish(&history).await;
            let running = fixture.consumer(batched(batch, concurrency), plain(apply::<D>));
            fixture.settle(ends).await;
            running.stop().await;
            let account = fixture.account().await;
            let mut found: ByKey = BTreeMap::new();
            for effect in account.effects.values().flatten() {
                found.entry(effect.key.clone()).or_default().extend(effect.sequence);
            }
            found.entry(None).and_modify(|keyless| keyless.sort());
            assert_eq!(found, effects, "effects in batches of {batch}, {concurrency} at a time, seed {seed}");
            let parked: usize = account.letters.values().map(Vec::len).sum();
            assert_eq!(parked, letters.values().map(Vec::len).sum::<usize>(), "letters, seed {seed}");
            match &one_by_one {
                None => one_by_one = Some(account),
                Some(first) => assert_eq!(&account, first, "batches of {batch}, {concurrency} at a time, seed {seed}"),
            }
        }
    }
}
