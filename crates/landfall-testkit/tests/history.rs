//! The history checker against planted bugs: what is wrong is named, and what is allowed is not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use landfall_core::{Key, MessageId};
use landfall_testkit::history::{History, Named, Reordered, check};

fn key(name: &str) -> Option<Key> {
    Some(Key::new(name).unwrap())
}

/// `count` messages of one key, sent one after the other; effects are up to the test.
fn sent(count: usize) -> (History, Vec<MessageId>) {
    let (mut history, ids) = (History::new(["g"]), (0..count).map(|_| MessageId::new()).collect::<Vec<_>>());
    for id in &ids {
        history.invoke(*id, key("k"), None);
        history.ok(*id);
    }
    (history, ids)
}

fn named(id: MessageId, times: usize) -> Named {
    Named { group: "g".into(), id, key: key("k"), times }
}

#[test]
fn a_clean_history_is_clean() {
    let (mut history, ids) = sent(3);
    ids.iter().for_each(|id| history.effect("g", *id, key("k")));
    let (failed, unknown, open) = (MessageId::new(), MessageId::new(), MessageId::new());
    for id in [failed, unknown, open] {
        history.invoke(id, key("k"), None);
    }
    history.failed(failed);
    history.unknown(unknown);
    history.effect("g", open, key("k"));
    let report = check(&history);
    report.assert_clean();
    assert_eq!((report.messages, report.ok, report.failed, report.unknown, report.effects), (6, 3, 1, 2, 4));
}

#[test]
fn an_ok_message_without_an_effect_is_lost() {
    let (mut history, ids) = sent(3);
    history.effect("g", ids[0], key("k"));
    history.effect("g", ids[2], key("k"));
    let report = check(&history);
    assert_eq!(report.lost, [named(ids[1], 0)]);
    assert!(report.doubled.is_empty() && report.phantom.is_empty() && report.reordered.is_empty());
}

#[test]
fn a_group_that_did_nothing_lost_everything() {
    let (history, _) = sent(3);
    assert_eq!(check(&history).lost.len(), 3);
    let mut nobody_named = History::default();
    let id = MessageId::new();
    nobody_named.invoke(id, None, None);
    nobody_named.ok(id);
    assert_eq!(check(&nobody_named).lost.len(), 1);
}

#[test]
fn an_effect_of_what_failed_or_was_never_sent_is_a_phantom() {
    let (mut history, ids) = sent(1);
    let (failed, never) = (MessageId::new(), MessageId::new());
    history.invoke(failed, key("k"), None);
    history.failed(failed);
    for id in [ids[0], failed, never] {
        history.effect("g", id, key("k"));
    }
    assert_eq!(check(&history).phantom, [named(failed, 1), named(never, 1)]);
}

#[test]
fn a_message_sent_again_after_a_failure_is_one_message() {
    let (mut history, id) = (History::new(["g"]), MessageId::new());
    history.invoke(id, None, None);
    history.failed(id);
    history.invoke(id, None, None);
    history.unknown(id);
    assert_eq!(check(&history).unknown, 1, "the second send may have worked");
    history.effect("g", id, None);
    check(&history).assert_clean();
}

#[test]
fn two_effects_of_one_message_are_one_doubled_message() {
    let (mut history, ids) = sent(2);
    for id in [ids[0], ids[1], ids[0], ids[0]] {
        history.effect("g", id, key("k"));
    }
    let report = check(&history);
    assert_eq!(report.doubled, [named(ids[0], 3)]);
    assert!(report.reordered.is_empty(), "the first effect counts for the order");
}

#[test]
fn groups_are_judged_apart() {
    let (mut history, ids) = sent(1);
    history.effect("g", ids[0], key("k"));
    history.effect("h", ids[0], key("k"));
    check(&history).assert_clean();
    history.effect("h", ids[0], key("k"));
    assert_eq!(check(&history).doubled[0].group, "h");
}

#[test]
fn an_effect_before_that_of_an_earlier_message_is_reordered() {
    let (mut history, ids) = sent(3);
    for id in [ids[0], ids[2], ids[1]] {
        history.effect("g", id, key("k"));
    }
    let report = check(&history);
    let expected = Reordered { group: "g".into(), key: key("k").unwrap(), first: ids[1], overtaken_by: ids[2] };
    assert_eq!(report.reordered, [expected]);
    assert!(report.lost.is_empty() && report.doubled.is_empty() && report.phantom.is_empty());
}

#[test]
fn sends_that_overlap_may_take_effect_in_any_order() {
    let (mut history, one, two) = (History::new(["g"]), MessageId::new(), MessageId::new());
    for id in [one, two] {
        history.invoke(id, key("k"), None);
    }
    for id in [one, two] {
        history.ok(id);
    }
    history.effect("g", two, key("k"));
    history.effect("g", one, key("k"));
    check(&history).assert_clean();
}

#[test]
fn different_keys_and_no_key_have_no_order() {
    for keys in [[key("a"), key("b")], [None, None]] {
        let (mut history, ids) = (History::new(["g"]), [MessageId::new(), MessageId::new()]);
        for (id, key) in ids.iter().zip(keys.clone()) {
            history.invoke(*id, key, None);
            history.ok(*id);
        }
        history.effect("g", ids[1], keys[1].clone());
        history.effect("g", ids[0], keys[0].clone());
        check(&history).assert_clean();
    }
}

#[test]
fn numbers_that_do_not_grow_are_reordered_even_if_the_sends_overlapped() {
    for (numbers, clean) in [([1, 2], true), ([2, 1], false), ([1, 1], false)] {
        let (mut history, ids) = (History::new(["g"]), [MessageId::new(), MessageId::new()]);
        for (id, number) in ids.iter().zip(numbers) {
            history.invoke(*id, key("k"), Some(number));
        }
        ids.iter().for_each(|id| history.effect("g", *id, key("k")));
        assert_eq!(check(&history).is_clean(), clean, "{numbers:?}");
    }
}

#[test]
fn the_account_names_the_messages() {
    let (mut history, ids) = sent(30);
    history.effect("g", ids[1], key("k"));
    history.effect("g", ids[0], key("k"));
    history.effect("g", ids[0], key("k"));
    let text = check(&history).to_string();
    assert!(text.starts_with("30 messages (30 ok, 0 failed, 0 unknown), 3 effects\n"), "{text}");
    assert!(text.contains(&format!("{} of key k in group g took effect after {}", ids[0], ids[1])), "{text}");
    assert!(text.contains(&format!("{} of key k in group g: 2 effects", ids[0])), "{text}");
    assert!(text.contains("lost (ok, and without effect): 28\n") && text.contains("and 8 more"), "{text}");
}

#[test]
fn a_million_events_are_checked_quickly() {
    let mut history = History::new(["g"]);
    let ids: Vec<_> = (0..333_334).map(|_| MessageId::new()).collect();
    let keys: Vec<_> = (0..1000).map(|n| key(&format!("key-{n}"))).collect();
    let of = |n: usize| keys[n % keys.len()].clone();
    for (n, id) in ids.iter().enumerate() {
        history.invoke(*id, of(n), Some(n as i64));
        history.ok(*id);
    }
    ids.iter().enumerate().for_each(|(n, id)| history.effect("g", *id, of(n)));
    let started = std::time::Instant::now();
    check(&history).assert_clean();
    assert!(started.elapsed().as_secs() < 120, "a check that is not linear takes hours: {:?}", started.elapsed());
}
