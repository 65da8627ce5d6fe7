//! What people do with dead letters: find them, count them, redrive them, and read who did what.

use std::time::Duration;

use landfall_core::{
    DeadLetter, DeadLetterFilter, DeadLetterStatus, DeadLetters, Decision, ErrorCode, Hold, MessageId, Timestamp,
    TopicName,
};

use super::stage::{A_MOMENT, LONG};
use super::{AuditRow, DatabaseFixture, Stage};
use crate::conformance::sample::{group, key, keyed, keyless, series, topic};

/// Dead letters that differ in every way a filter can ask for: two groups and the relay, two topics, keys and none,
/// three error codes, every status.
async fn a_mixed_lot<F: DatabaseFixture>(stage: &Stage<F>) -> Vec<DeadLetter> {
    let done = keyed("done", 1);
    stage.park(&group("payment"), &done).await;
    stage.redrive(&done).await;
    stage.drain(&group("payment")).await;
    let redriving = keyed("b", 1);
    stage.park(&group("payment"), &redriving).await;
    stage.redrive(&redriving).await;
    stage.park_with_successors(&group("stock"), &series("a", 2)).await;
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    stage.park(&group("stock"), &elsewhere).await;
    stage.delay(&group("stock"), &keyed("delayed", 1), Hold::Key, LONG).await;
    let by_the_relay = keyless();
    stage.enqueue(std::slice::from_ref(&by_the_relay)).await;
    let leases = stage.lease_all("one").await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    stage.settle(&leases, &by_the_relay, decision).await;
    let all = stage.letters().await;
    assert_eq!(all.len(), 7);
    all
}

pub async fn every_filter_finds_what_matches<F: DatabaseFixture>(stage: Stage<F>) {
    let all = a_mixed_lot(&stage).await;
    assert!(all.is_sorted_by_key(|letter| letter.id), "by id");
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
        let found: Vec<_> = stage.database.find(filter, 100).await.unwrap().iter().map(|letter| letter.id).collect();
        let expected: Vec<_> = all.iter().filter(|letter| matches(letter)).map(|letter| letter.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    for status in DeadLetterStatus::ALL {
        let found = stage.database.find(&DeadLetterFilter { status: Some(status), ..any() }, 100).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(|letter| letter.status == status), "{status:?}: {found:?}");
    }
}

pub async fn pages_follow_each_other<F: DatabaseFixture>(stage: Stage<F>) {
    let all = a_mixed_lot(&stage).await;
    let mut seen: Vec<i64> = Vec::new();
    loop {
        let filter = DeadLetterFilter { after: seen.last().copied(), ..Default::default() };
        let page = stage.database.find(&filter, 4).await.unwrap();
        assert!(page.len() <= 4);
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|letter| letter.id));
    }
    assert_eq!(seen, all.iter().map(|letter| letter.id).collect::<Vec<_>>());
}

pub async fn the_figures_add_up_at_every_step<F: DatabaseFixture>(stage: Stage<F>) {
    let figures = async || {
        let stats = stage.database.dead_letter_stats().await.unwrap();
        (stats.parked, stats.waiting, stats.redriving, stats.done)
    };
    let (stock, messages) = (group("stock"), series("a", 3));
    assert_eq!(figures().await, (0, 0, 0, 0));
    stage.park_with_successors(&stock, &messages).await;
    assert_eq!(figures().await, (1, 2, 0, 0));
    stage.redrive(&messages[0]).await;
    assert_eq!(figures().await, (0, 2, 1, 0));
    stage.fail_one(&stock).await;
    assert_eq!(figures().await, (1, 2, 0, 0));
    stage.redrive(&messages[0]).await;
    stage.drain_one(&stock).await;
    assert_eq!(figures().await, (0, 2, 0, 1));
    stage.drain(&stock).await;
    assert_eq!(figures().await, (0, 0, 0, 3));
}

pub async fn every_change_is_in_the_audit_trail<F: DatabaseFixture>(stage: Stage<F>) {
    let (stock, message) = (group("stock"), keyed("a", 1));
    stage.park(&stock, &message).await;
    stage.redrive(&message).await;
    stage.fail_one(&stock).await;
    stage.redrive(&message).await;
    stage.drain(&stock).await;

    let relayed = keyless();
    stage.enqueue(std::slice::from_ref(&relayed)).await;
    let leases = stage.lease_all("one").await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    stage.settle(&leases, &relayed, decision).await;
    stage.redrive(&relayed).await;

    let audit = stage.audit().await;
    let trail = |id| -> Vec<(&str, &str)> {
        let of_one = audit.iter().filter(|row: &&AuditRow| row.message_id == id);
        of_one.map(|row| (row.actor.as_str(), row.action.as_str())).collect()
    };
    let consumer = "consumer:stock";
    let own = trail(message.id);
    assert_eq!(own.iter().map(|row| row.1).collect::<Vec<_>>(), ["park", "redrive", "park", "redrive", "effect"]);
    assert_eq!((own[0].0, own[1].0, own[3].0), (consumer, "alice", "alice"));
    assert_eq!(trail(relayed.id), [("relay", "park"), ("alice", "redrive")]);
}

pub async fn a_redrive_moves_only_what_is_parked<F: DatabaseFixture>(stage: Stage<F>) {
    let all = a_mixed_lot(&stage).await;
    let of = |status| all.iter().filter(move |letter| letter.status == status).map(|letter| letter.id);
    let nothing = DeadLetterFilter { topic: Some(TopicName::new("nowhere").unwrap()), ..Default::default() };
    let answer = stage.database.redrive(&nothing, "bob").await.unwrap();
    assert!(answer.redriven.is_empty() && answer.skipped.is_empty(), "{answer:?}");

    let mut answer = stage.database.redrive(&DeadLetterFilter::default(), "bob").await.unwrap();
    assert_eq!(answer.redriven, of(DeadLetterStatus::Parked).collect::<Vec<_>>(), "oldest first");
    answer.skipped.sort();
    let parked: Vec<_> = of(DeadLetterStatus::Parked).collect();
    let others: Vec<_> = all.iter().map(|letter| letter.id).filter(|id| !parked.contains(id)).collect();
    assert_eq!(answer.skipped, others);
    assert_eq!(stage.audit().await.iter().filter(|row| row.actor == "bob").count(), parked.len());
}

pub async fn two_redrives_at_once_move_everything_once<F: DatabaseFixture>(stage: Stage<F>) {
    let stock = group("stock");
    let keys: Vec<String> = (0..10).map(|n| format!("key-{n}")).collect();
    for key in &keys {
        stage.park(&stock, &keyed(key, 1)).await;
    }
    let (second, all) = (stage.second().await, DeadLetterFilter::default());
    let (here, there) = tokio::join!(stage.database.redrive(&all, "alice"), second.redrive(&all, "bob"));
    let (here, there) = (here.unwrap(), there.unwrap());
    let mut moved = [here.redriven, there.redriven].concat();
    moved.sort();
    let letters = stage.letters().await;
    assert_eq!(moved, letters.iter().map(|letter| letter.id).collect::<Vec<_>>(), "each in one answer");
    assert!(letters.iter().all(|letter| letter.redrives == 1));
}

/// Every twentieth is older than the answer. By the clocks of this process and of the server, which may differ a little.
pub async fn the_age_that_few_parked_letters_have_is_told<F: DatabaseFixture>(stage: Stage<F>) {
    assert_eq!(stage.database.parked_age_p95().await.unwrap(), Duration::ZERO, "nothing is parked");
    let done = keyed("done", 1);
    stage.park(&group("stock"), &done).await;
    stage.redrive(&done).await;
    stage.drain(&group("stock")).await;
    for number in 0..41 {
        stage.park(&group("stock"), &keyed(&format!("key-{number}"), 1)).await;
    }
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..Default::default() };
    let letters = stage.database.find(&parked, 100).await.unwrap();
    assert_eq!(letters.len(), 41);
    let age = |letter: &DeadLetter| letter.first_seen.elapsed_since(Timestamp::now());
    let at_least = age(&letters[3]).saturating_sub(A_MOMENT);
    let told = stage.database.parked_age_p95().await.unwrap();
    let at_most = age(&letters[1]) + A_MOMENT;
    assert!(!told.is_zero() && (at_least..=at_most).contains(&told), "{at_least:?} <= {told:?} <= {at_most:?}");
}
