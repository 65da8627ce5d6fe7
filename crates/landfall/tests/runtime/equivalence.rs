//! Batched or one by one: for any history the same effects, the same letters, the same inbox.

use std::collections::{BTreeMap, BTreeSet};

use landfall::Message;
use landfall::consume::plain;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::batches::{apply, batched};
use crate::ground::{Ground, message};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(batches_of_any_size_do_what_single_messages_do);

/// The numbers of the messages, per key in order.
pub(crate) type ByKey = BTreeMap<Option<String>, Vec<i64>>;

/// What a history must come to, by the rules alone: a copy changes nothing, and behind a message that cannot be handled
/// its key ends.
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

/// Keys with few and with many messages, messages without one, copies near and far, and every kind of failure.
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

async fn batches_of_any_size_do_what_single_messages_do<D: Place>(first: Ground<D>) {
    let seed = rand::random_range(0..1_000_000);
    let random = &mut StdRng::seed_from_u64(seed);
    // Every case below names it, so that a run can be repeated.
    let mut ground = Some(first);
    for _ in 0..4 {
        let history = history(random);
        let (effects, letters) = expected(&history);
        let ends = effects.values().chain(letters.values()).map(Vec::len).sum();
        let mut one_by_one = None;
        for (batch, concurrency) in [(1, 1), (100, 1), (random.random_range(2..20), 4)] {
            let ground = match ground.take() {
                Some(ground) => ground,
                None => Ground::<D>::new().await.unwrap(),
            };
            ground.publish(&history).await;
            let running = ground.consumer(batched(batch, concurrency), plain(apply::<D>));
            ground.settle(ends).await;
            running.stop().await;
            let account = ground.account().await;
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
