//! Operations on dead letters: find, count, redrive, and the audit trail.

use std::time::Duration;

use landfall_core::adapter::{Admission, Decision, Hold};
use landfall_core::{
    DeadLetter, DeadLetterFilter, DeadLetterStatus, DeadLetters, ErrorCode, MessageId, Timestamp, TopicName,
};

use super::harness::{LONG, SHORT_WAIT};
use super::{AuditRow, DatabaseFixture, Harness};
use crate::conformance::sample::{group, key, keyed, keyless, series, topic};

/// Creates dead letters for every filter: two groups and the relay, two topics, with and without key, three error
/// codes, every status.
async fn create_mixed_letters<F: DatabaseFixture>(harness: &Harness<F>) -> Vec<DeadLetter> {
    let done = keyed("done", 1);
    harness.park(&group("payment"), &done).await;
    harness.redrive(&done).await;
    harness.drain(&group("payment")).await;
    let redriving = keyed("b", 1);
    harness.park(&group("payment"), &redriving).await;
    harness.redrive(&redriving).await;
    harness.park_with_successors(&group("stock"), &series("a", 2)).await;
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    harness.park(&group("stock"), &elsewhere).await;
    harness.delay(&group("stock"), &keyed("delayed", 1), Hold::Key, LONG).await;
    let parked_by_relay = keyless();
    harness.enqueue(std::slice::from_ref(&parked_by_relay)).await;
    let leases = harness.lease_all("one").await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &parked_by_relay, decision).await;
    let discarded = keyed("discarded", 1);
    harness.park(&group("payment"), &discarded).await;
    harness.discard(&discarded).await;
    let ignored = keyed("ignored", 1);
    harness.park(&group("payment"), &ignored).await;
    harness.database.ignore(harness.letter(&ignored).await.id, "later", "alice").await.unwrap();
    let all = harness.letters().await;
    assert_eq!(all.len(), 9);
    all
}

pub async fn dead_letter_filters_return_matching_letters<F: DatabaseFixture>(harness: Harness<F>) {
    let all = create_mixed_letters(&harness).await;
    assert!(all.is_sorted_by_key(|letter| letter.id), "not sorted by id");
    let one = all[3].clone();
    let any = DeadLetterFilter::default;
    type Matches<'a> = Box<dyn Fn(&DeadLetter) -> bool + 'a>;
    let cases: Vec<(DeadLetterFilter, Matches<'_>)> = vec![
        (DeadLetterFilter { id: Some(one.id), ..any() }, Box::new(|l| l.id == one.id)),
        (DeadLetterFilter { id: Some(i64::MAX), ..any() }, Box::new(|_| false)),
        (DeadLetterFilter { message_id: Some(one.message_id), ..any() }, Box::new(|l| l.message_id == one.message_id)),
        (DeadLetterFilter { message_id: Some(MessageId::new()), ..any() }, Box::new(|_| false)),
        (DeadLetterFilter { group: Some(group("stock")), ..any() }, Box::new(|l| l.group == Some(group("stock")))),
        (DeadLetterFilter { topic: Some(topic("payments")), ..any() }, Box::new(|l| l.topic == topic("payments"))),
        (DeadLetterFilter { key: Some(key("a")), ..any() }, Box::new(|l| l.key == Some(key("a")))),
        (DeadLetterFilter { error_code: Some("TOO_LARGE".into()), ..any() }, Box::new(|l| l.error_code == "TOO_LARGE")),
        (DeadLetterFilter { from: Some(one.first_seen), ..any() }, Box::new(|l| l.first_seen >= one.first_seen)),
        (DeadLetterFilter { to: Some(one.first_seen), ..any() }, Box::new(|l| l.first_seen < one.first_seen)),
        (DeadLetterFilter { after: Some(one.id), ..any() }, Box::new(|l| l.id > one.id)),
        (
            // Every field that is set must match.
            DeadLetterFilter {
                group: Some(group("stock")),
                topic: Some(topic("orders")),
                key: Some(key("a")),
                ..any()
            },
            Box::new(|l| l.group.is_some() && l.topic.as_str() == "orders" && l.key == Some(key("a"))),
        ),
        (DeadLetterFilter { group: Some(group("stock")), key: Some(key("b")), ..any() }, Box::new(|_| false)),
    ];
    for (filter, matches) in &cases {
        let found: Vec<_> = harness.database.find(filter, 100).await.unwrap().iter().map(|letter| letter.id).collect();
        let expected: Vec<_> = all.iter().filter(|letter| matches(letter)).map(|letter| letter.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let open = harness.database.find(&DeadLetterFilter { open: true, ..any() }, 100).await.unwrap();
    assert_eq!(open.len(), 7, "{open:?}");
    let is_open = |letter: &DeadLetter| !matches!(letter.status, DeadLetterStatus::Done | DeadLetterStatus::Discarded);
    assert!(open.iter().all(is_open), "{open:?}");
    for status in DeadLetterStatus::ALL {
        let found = harness.database.find(&DeadLetterFilter { status: Some(status), ..any() }, 100).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(|letter| letter.status == status), "{status:?}: {found:?}");
    }
}

pub async fn dead_letter_pages_return_each_letter_once<F: DatabaseFixture>(harness: Harness<F>) {
    let all = create_mixed_letters(&harness).await;
    let mut seen: Vec<i64> = Vec::new();
    loop {
        let filter = DeadLetterFilter { after: seen.last().copied(), ..Default::default() };
        let page = harness.database.find(&filter, 4).await.unwrap();
        assert!(page.len() <= 4);
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|letter| letter.id));
    }
    assert_eq!(seen, all.iter().map(|letter| letter.id).collect::<Vec<_>>());
}

pub async fn lists_of_letters_leave_out_payloads<F: DatabaseFixture>(harness: Harness<F>) {
    let all = create_mixed_letters(&harness).await;
    let parked = all.iter().position(|letter| letter.status == DeadLetterStatus::Parked).unwrap();
    harness.database.edit(all[parked].id, b"edited", "alice").await.unwrap();
    let filter = DeadLetterFilter::default();
    let found = harness.database.find(&filter, 100).await.unwrap();
    assert!(found.iter().all(|letter| !letter.payload.is_empty()) && found[parked].original_payload.is_some());
    let listed = harness.database.list_letters(&filter, 100).await.unwrap();
    assert!(listed.iter().all(|letter| letter.payload.is_empty() && letter.original_payload.is_none()));
    let shown = |letters: &[DeadLetter]| serde_json::to_value(letters).unwrap();
    assert_eq!(shown(&listed), shown(&found), "a list lacks more than the payloads");
}

pub async fn most_frequent_error_codes_are_counted<F: DatabaseFixture>(harness: Harness<F>) {
    let all = create_mixed_letters(&harness).await;
    let mut expected: Vec<(String, u64)> = Vec::new();
    for letter in all.iter().filter(|letter| letter.status == DeadLetterStatus::Parked) {
        match expected.iter_mut().find(|(code, _)| *code == letter.error_code) {
            Some((_, count)) => *count += 1,
            None => expected.push((letter.error_code.clone(), 1)),
        }
    }
    expected.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), code.clone()));
    assert_eq!(expected.len(), 2);
    assert_eq!(harness.database.top_error_codes(10).await.unwrap(), expected);
    assert_eq!(harness.database.top_error_codes(1).await.unwrap(), expected[..1]);
}

pub async fn dead_letter_counts_are_consistent_at_every_step<F: DatabaseFixture>(harness: Harness<F>) {
    let counts = async || {
        let stats = harness.database.dead_letter_stats().await.unwrap();
        (stats.parked, stats.waiting, stats.redriving, stats.done)
    };
    let (stock, messages) = (group("stock"), series("a", 3));
    assert_eq!(counts().await, (0, 0, 0, 0));
    harness.park_with_successors(&stock, &messages).await;
    assert_eq!(counts().await, (1, 2, 0, 0));
    harness.redrive(&messages[0]).await;
    assert_eq!(counts().await, (0, 2, 1, 0));
    harness.fail_one(&stock).await;
    assert_eq!(counts().await, (1, 2, 0, 0));
    harness.redrive(&messages[0]).await;
    harness.drain_one(&stock).await;
    assert_eq!(counts().await, (0, 2, 0, 1));
    harness.drain(&stock).await;
    assert_eq!(counts().await, (0, 0, 0, 3));
}

pub async fn every_dead_letter_change_is_audited<F: DatabaseFixture>(harness: Harness<F>) {
    let (stock, message, queued) = (group("stock"), keyed("a", 1), keyed("a", 2));
    harness.park(&stock, &message).await;
    assert_eq!(harness.handle(&stock, &queued).await, Admission::Held);
    harness.redrive(&message).await;
    harness.fail_one(&stock).await;
    harness.redrive(&message).await;
    harness.drain(&stock).await;

    let relayed = keyless();
    harness.enqueue(std::slice::from_ref(&relayed)).await;
    let leases = harness.lease_all("one").await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &relayed, decision).await;
    harness.redrive(&relayed).await;

    let audit = harness.audit().await;
    let trail = |id| -> Vec<(&str, &str)> {
        let rows = audit.iter().filter(|row: &&AuditRow| row.message_id == id);
        rows.map(|row| (row.actor.as_str(), row.action.as_str())).collect()
    };
    let consumer = "consumer:stock";
    let own = trail(message.id);
    assert_eq!(own.iter().map(|row| row.1).collect::<Vec<_>>(), ["park", "redrive", "park", "redrive", "effect"]);
    assert_eq!((own[0].0, own[1].0, own[3].0), (consumer, "alice", "alice"));
    assert_eq!(trail(queued.id), [(consumer, "queue"), (consumer, "effect")]);
    assert_eq!(trail(relayed.id), [("relay", "park"), ("alice", "redrive")]);
}

pub async fn redrive_affects_only_parked_letters<F: DatabaseFixture>(harness: Harness<F>) {
    let all = create_mixed_letters(&harness).await;
    let with_status = |status| all.iter().filter(move |letter| letter.status == status).map(|letter| letter.id);
    let nothing = DeadLetterFilter { topic: Some(TopicName::new("nowhere").unwrap()), ..Default::default() };
    let result = harness.database.redrive(&nothing, "bob").await.unwrap();
    assert!(result.redriven.is_empty() && result.skipped.is_empty(), "{result:?}");

    let mut result = harness.database.redrive(&DeadLetterFilter::default(), "bob").await.unwrap();
    assert_eq!(result.redriven, with_status(DeadLetterStatus::Parked).collect::<Vec<_>>(), "oldest first");
    result.skipped.sort();
    let parked: Vec<_> = with_status(DeadLetterStatus::Parked).collect();
    let others: Vec<_> = all.iter().map(|letter| letter.id).filter(|id| !parked.contains(id)).collect();
    assert_eq!(result.skipped, others);
    assert_eq!(harness.audit().await.iter().filter(|row| row.actor == "bob").count(), parked.len());
}

pub async fn concurrent_redrives_move_each_letter_once<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    let keys: Vec<String> = (0..10).map(|n| format!("key-{n}")).collect();
    for key in &keys {
        harness.park(&stock, &keyed(key, 1)).await;
    }
    let (second, all) = (harness.second().await, DeadLetterFilter::default());
    let (here, there) = tokio::join!(harness.database.redrive(&all, "alice"), second.redrive(&all, "bob"));
    let (here, there) = (here.unwrap(), there.unwrap());
    let mut moved = [here.redriven, there.redriven].concat();
    moved.sort();
    let letters = harness.letters().await;
    assert_eq!(
        moved,
        letters.iter().map(|letter| letter.id).collect::<Vec<_>>(),
        "each letter is in exactly one result"
    );
    assert!(letters.iter().all(|letter| letter.redrives == 1));
}

/// One letter in twenty is older than the result. The clocks of this process and of the server may differ a little.
pub async fn parked_age_p95_is_reported<F: DatabaseFixture>(harness: Harness<F>) {
    assert_eq!(harness.database.parked_age_p95().await.unwrap(), Duration::ZERO, "an empty table has an age");
    let done = keyed("done", 1);
    harness.park(&group("stock"), &done).await;
    harness.redrive(&done).await;
    harness.drain(&group("stock")).await;
    for number in 0..41 {
        harness.park(&group("stock"), &keyed(&format!("key-{number}"), 1)).await;
    }
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    let letters = harness.database.find(&parked, 100).await.unwrap();
    assert_eq!(letters.len(), 41);
    let age = |letter: &DeadLetter| letter.first_seen.elapsed_since(Timestamp::now());
    let at_least = age(&letters[3]).saturating_sub(SHORT_WAIT);
    let reported = harness.database.parked_age_p95().await.unwrap();
    let at_most = age(&letters[1]) + SHORT_WAIT;
    assert!(
        !reported.is_zero() && (at_least..=at_most).contains(&reported),
        "{at_least:?} <= {reported:?} <= {at_most:?}"
    );
}
