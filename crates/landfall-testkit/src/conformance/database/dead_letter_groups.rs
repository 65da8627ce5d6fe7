//! Fingerprints, groups, searches and ignored letters.

use landfall_core::{
    AtLeast, Database, DeadLetter, DeadLetterFilter, DeadLetterStatus, DeadLetters, ErrorKind, Message, TextSearch,
};

use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{group, keyed};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn traced(key: &str) -> Message {
    let mut message = keyed(key, 1);
    message.headers.insert("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
    message
}

impl<F: DatabaseFixture> Harness<F> {
    async fn matching(&self, filter: DeadLetterFilter) -> Vec<DeadLetter> {
        self.database.find(&filter, 100).await.unwrap()
    }
}

pub async fn letters_are_found_by_error_trace_and_text<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    harness.park(&stock, &traced("a")).await;
    harness.park(&stock, &keyed("b", 7)).await;
    let all = harness.letters().await;
    assert_eq!((all[0].trace_id.as_deref(), &all[1].trace_id), (Some(TRACE), &None));
    let any = DeadLetterFilter::default;
    let of_trace = harness.matching(DeadLetterFilter { trace_id: Some(TRACE.into()), ..any() }).await;
    assert_eq!(of_trace.iter().map(|letter| letter.id).collect::<Vec<_>>(), [all[0].id]);
    let fingerprint = Some(all[0].fingerprint.clone());
    assert_eq!(harness.matching(DeadLetterFilter { fingerprint, ..any() }).await.len(), 2);
    let unknown = DeadLetterFilter { fingerprint: Some("1-0".into()), ..any() };
    assert!(harness.matching(unknown).await.is_empty());
    let text = |text: &str, in_payload| Some(TextSearch { text: text.into(), in_payload });
    assert_eq!(harness.matching(DeadLetterFilter { text: text("OUT of Stock", false), ..any() }).await.len(), 2);
    assert_eq!(harness.matching(DeadLetterFilter { text: text("b/7", true), ..any() }).await.len(), 1);
    assert_eq!(harness.matching(DeadLetterFilter { text: text("b/7", false), ..any() }).await.len(), 0);
    assert_eq!(harness.matching(DeadLetterFilter { text: text("%_'\\", true), ..any() }).await.len(), 0);
}

pub async fn letters_are_grouped_by_fingerprint<F: DatabaseFixture>(harness: Harness<F>) {
    let stock = group("stock");
    for number in 0..3 {
        harness.park(&stock, &keyed(&format!("k{number}"), 1)).await;
    }
    harness.redrive(&keyed_letter(&harness, 0).await).await;
    harness.fail_with(&stock, "order 17 has no address").await;
    let groups = harness.database.dead_letter_groups(&DeadLetterFilter::default(), 10).await.unwrap();
    let counts: Vec<_> = groups.iter().map(|group| (group.count, group.error.as_str())).collect();
    assert_eq!(counts, [(2, "the item is out of stock"), (1, "order 17 has no address")]);
    let one = harness.database.dead_letter_groups(&DeadLetterFilter::default(), 1).await.unwrap();
    assert_eq!(one, groups[..1]);

    // As an earlier version left them.
    let mut transaction = harness.database.begin().await.unwrap();
    let forget = "UPDATE landfall_dead_letter SET fingerprint = NULL";
    harness.fixture.execute_text(&mut transaction, forget).await.unwrap();
    harness.database.commit(transaction).await.unwrap();
    assert_eq!(harness.database.dead_letter_groups(&DeadLetterFilter::default(), 10).await.unwrap(), groups);
    let fingerprint = Some(groups[0].fingerprint.clone());
    assert_eq!(harness.matching(DeadLetterFilter { fingerprint, ..Default::default() }).await.len(), 2);
}

async fn keyed_letter<F: DatabaseFixture>(harness: &Harness<F>, place: usize) -> Message {
    let letter = harness.letters().await.remove(place);
    Message::new(letter.topic, letter.payload).with_id(letter.message_id)
}

pub async fn counts_of_letters_are_bounded<F: DatabaseFixture>(harness: Harness<F>) {
    for number in 0..3 {
        harness.park(&group("stock"), &keyed(&format!("k{number}"), 1)).await;
    }
    let count = async |most| harness.database.count_letters(&DeadLetterFilter::default(), most).await.unwrap();
    assert_eq!(count(2).await, AtLeast { count: 2, at_least: true });
    assert_eq!(count(3).await, AtLeast { count: 3, at_least: false });
}

pub async fn ignored_letter_waits_until_it_is_released<F: DatabaseFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    harness.park(&group("stock"), &message).await;
    let id = harness.letter(&message).await.id;
    for _ in 0..2 {
        harness.database.ignore(id, "a test order", "alice").await.unwrap();
    }
    assert_eq!(harness.letter(&message).await.status, DeadLetterStatus::Ignored);
    let redriven = harness.database.redrive(&DeadLetterFilter::default(), "bob").await.unwrap();
    assert_eq!((redriven.redriven, redriven.skipped), (vec![], vec![id]));
    assert_eq!(harness.database.dead_letter_stats().await.unwrap().ignored, 1);
    harness.database.release_ignored(id, "", "alice").await.unwrap();
    let actions: Vec<_> = harness.audit().await.into_iter().map(|row| row.action).collect();
    assert_eq!(actions, ["park", "ignore", "release"], "a repetition was audited");
    harness.redrive(&message).await;
    let error = harness.database.ignore(id, "", "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let error = harness.database.release_ignored(i64::MAX, "", "alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Payloads that are not JSON do not match and are no error.
pub async fn letters_are_found_by_a_value_in_the_payload<F: DatabaseFixture>(harness: Harness<F>) {
    let payloads: [&[u8]; 7] = [
        br#"{"order": {"id": 9007199254740993, "items": [{"sku": "a"}, {"sku": "B\u00e9"}], "paid": true, "n": null}}"#,
        br#"{"order": {"id": 9007199254740992}}"#,
        br#"{"order": {"id": "9007199254740993"}}"#,
        br#"{"order": {"id": 9007199254740993}"#,
        b"\xff\xfe\x00",
        b"",
        b"[9007199254740993]",
    ];
    for (number, payload) in payloads.into_iter().enumerate() {
        let message = keyed(&format!("k{number}"), 1);
        harness.park(&group("stock"), &Message { payload: payload.into(), ..message }).await;
    }
    let ids: Vec<_> = harness.letters().await.iter().map(|letter| letter.id).collect();
    let found = async |path: &str| {
        let filter = DeadLetterFilter { path: Some(path.parse().unwrap()), ..DeadLetterFilter::default() };
        let found = harness.matching(filter.clone()).await;
        let count = harness.database.count_letters(&filter, 100).await.unwrap();
        assert_eq!(count, AtLeast { count: found.len() as u64, at_least: false });
        found.iter().map(|letter| ids.iter().position(|id| *id == letter.id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(found("$.order.id:9007199254740993").await, [0, 2], "a 64-bit integer is not exact");
    assert_eq!(found("$.order.id:9007199254740992").await, [1]);
    assert_eq!(found("$.order.items[1].sku:B\u{e9}").await, [0]);
    assert_eq!(found("$.order.items[0].sku=a").await, [0]);
    assert_eq!(found("$.order.items[0].sku=A").await, [] as [usize; 0]);
    assert_eq!(found("$.order.paid:true").await, [0]);
    assert_eq!(found("$.order.n:null").await, [0]);
    assert_eq!(found("$[0]:9007199254740993").await, [6]);
    assert_eq!(found("$.order.items[2].sku:a").await, [] as [usize; 0]);
    assert_eq!(found("$.absent:' OR 1=1").await, [] as [usize; 0]);
}
