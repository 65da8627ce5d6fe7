//! The history checker: violations are reported, and allowed histories pass.

use landfall_core::{Key, MessageId};
use landfall_testkit::history::{History, Reordered, Violation, check};

fn key(name: &str) -> Option<Key> {
    Some(Key::new(name).unwrap())
}

/// Returns a history of `count` messages of one key, sent one after the other, without effects.
fn sent(count: usize) -> (History, Vec<MessageId>) {
    let (mut history, ids) = (History::new(["g"]), (0..count).map(|_| MessageId::new()).collect::<Vec<_>>());
    for id in &ids {
        history.invoke(*id, key("k"), None);
        history.ok(*id);
    }
    (history, ids)
}

fn violation(id: MessageId, effects: usize) -> Violation {
    Violation { group: "g".into(), id, key: key("k"), effects }
}

#[test]
fn correct_history_has_no_violations() {
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
fn acknowledged_message_without_effect_is_lost() {
    let (mut history, ids) = sent(3);
    history.effect("g", ids[0], key("k"));
    history.effect("g", ids[2], key("k"));
    let report = check(&history);
    assert_eq!(report.lost, [violation(ids[1], 0)]);
    assert!(report.doubled.is_empty() && report.phantom.is_empty() && report.reordered.is_empty());
}

#[test]
fn group_without_effects_lost_everything() {
    let (history, _) = sent(3);
    assert_eq!(check(&history).lost.len(), 3);
    let mut without_groups = History::default();
    let id = MessageId::new();
    without_groups.invoke(id, None, None);
    without_groups.ok(id);
    assert_eq!(check(&without_groups).lost.len(), 1);
}

#[test]
fn effect_of_a_failed_or_unsent_message_is_a_phantom() {
    let (mut history, ids) = sent(1);
    let (failed, never) = (MessageId::new(), MessageId::new());
    history.invoke(failed, key("k"), None);
    history.failed(failed);
    for id in [ids[0], failed, never] {
        history.effect("g", id, key("k"));
    }
    assert_eq!(check(&history).phantom, [violation(failed, 1), violation(never, 1)]);
}

#[test]
fn resend_after_a_failure_is_the_same_message() {
    let (mut history, id) = (History::new(["g"]), MessageId::new());
    history.invoke(id, None, None);
    history.failed(id);
    history.invoke(id, None, None);
    history.unknown(id);
    assert_eq!(check(&history).unknown, 1, "the second send may have succeeded");
    history.effect("g", id, None);
    check(&history).assert_clean();
}

#[test]
fn repeated_effects_are_one_doubled_message() {
    let (mut history, ids) = sent(2);
    for id in [ids[0], ids[1], ids[0], ids[0]] {
        history.effect("g", id, key("k"));
    }
    let report = check(&history);
    assert_eq!(report.doubled, [violation(ids[0], 3)]);
    assert!(report.reordered.is_empty(), "only the first effect is checked for order");
}

#[test]
fn groups_are_checked_independently() {
    let (mut history, ids) = sent(1);
    history.effect("g", ids[0], key("k"));
    history.effect("h", ids[0], key("k"));
    check(&history).assert_clean();
    history.effect("h", ids[0], key("k"));
    assert_eq!(check(&history).doubled[0].group, "h");
}

#[test]
fn effect_before_an_earlier_message_is_reordered() {
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
fn overlapping_sends_may_take_effect_in_any_order() {
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
fn no_order_across_keys_or_without_a_key() {
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
fn non_increasing_sequences_are_reordered() {
    for (sequences, is_clean) in [([1, 2], true), ([2, 1], false), ([1, 1], false)] {
        let (mut history, ids) = (History::new(["g"]), [MessageId::new(), MessageId::new()]);
        for (id, sequence) in ids.iter().zip(sequences) {
            history.invoke(*id, key("k"), Some(sequence));
        }
        ids.iter().for_each(|id| history.effect("g", *id, key("k")));
        assert_eq!(check(&history).is_clean(), is_clean, "{sequences:?}");
    }
}

#[test]
fn report_names_the_messages() {
    let (mut history, ids) = sent(30);
    history.effect("g", ids[1], key("k"));
    history.effect("g", ids[0], key("k"));
    history.effect("g", ids[0], key("k"));
    let text = check(&history).to_string();
    assert!(text.starts_with("30 messages (30 ok, 0 failed, 0 unknown), 3 effects\n"), "{text}");
    assert!(text.contains(&format!("{} of key k in group g took effect after {}", ids[0], ids[1])), "{text}");
    assert!(text.contains(&format!("{} of key k in group g: 2 effects", ids[0])), "{text}");
    assert!(text.contains("lost (ok, but no effect): 28\n") && text.contains("and 8 more"), "{text}");
}

#[test]
fn million_events_are_checked_quickly() {
    let mut history = History::new(["g"]);
    let ids: Vec<_> = (0..333_334).map(|_| MessageId::new()).collect();
    let keys: Vec<_> = (0..1000).map(|n| key(&format!("key-{n}"))).collect();
    let key_of = |n: usize| keys[n % keys.len()].clone();
    for (n, id) in ids.iter().enumerate() {
        history.invoke(*id, key_of(n), Some(n as i64));
        history.ok(*id);
    }
    ids.iter().enumerate().for_each(|(n, id)| history.effect("g", *id, key_of(n)));
    let started = std::time::Instant::now();
    check(&history).assert_clean();
    assert!(started.elapsed().as_secs() < 120, "the check is not linear: {:?}", started.elapsed());
}
