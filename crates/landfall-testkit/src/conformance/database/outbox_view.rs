//! Views of the outbox: each message in exactly one state, filters, pages and details.

use landfall_core::adapter::Decision;
use landfall_core::{
    Database, ErrorCode, Message, MessageId, OutboxControl, OutboxFilter, OutboxQueue, OutboxRow, OutboxState,
    OutboxView, RowId,
};

use super::harness::{LONG, settlement};
use super::{DatabaseFixture, Harness};
use crate::conformance::sample::{elaborate, ids, key, keyed, keyless, series, topic};

/// A retrying message with a successor, a parked message with a successor, and three pending messages.
struct MixedStates {
    retrying: Message,
    behind_retrying: Message,
    parked: Message,
    behind_parked: Message,
    pending: Vec<Message>,
}

async fn create_mixed_states<F: DatabaseFixture>(harness: &Harness<F>) -> MixedStates {
    let [retrying, behind_retrying] = [keyed("a", 1), keyed("a", 2)];
    let [parked, behind_parked] = [keyed("b", 1), keyed("b", 2)];
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    let pending = vec![elsewhere, keyless(), keyed("c", 1)];
    harness.enqueue(&[retrying.clone(), behind_retrying.clone(), parked.clone(), behind_parked.clone()]).await;
    harness.enqueue(&pending).await;
    let leases = harness.lease_all("one").await;
    harness.settle(&leases, &retrying, Decision::Retry { after: LONG, error: "the broker is full".into() }).await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &parked, decision).await;
    MixedStates { retrying, behind_retrying, parked, behind_parked, pending }
}

fn in_state(state: OutboxState) -> OutboxFilter {
    OutboxFilter { state: Some(state), ..OutboxFilter::default() }
}

fn listed(rows: &[OutboxRow]) -> Vec<MessageId> {
    rows.iter().map(|row| row.message_id).collect()
}

pub async fn each_outbox_message_is_in_exactly_one_state<F: DatabaseFixture>(harness: Harness<F>) {
    let mixed = create_mixed_states(&harness).await;
    let list = async |filter: OutboxFilter| harness.database.list(&filter, 100).await.unwrap();
    let open = list(OutboxFilter::default()).await;
    let mut expected = vec![mixed.retrying.id, mixed.behind_retrying.id, mixed.behind_parked.id];
    expected.extend(ids(&mixed.pending));
    assert_eq!(listed(&open), expected, "the unsent messages, in order of row");
    assert!(open.is_sorted_by_key(|row| row.row));

    for (state, expected) in [
        (OutboxState::Retrying, vec![mixed.retrying.id]),
        (OutboxState::Waiting, vec![mixed.behind_retrying.id, mixed.behind_parked.id]),
        (OutboxState::Pending, ids(&mixed.pending)),
        (OutboxState::Parked, vec![mixed.parked.id]),
        (OutboxState::Sent, vec![]),
    ] {
        let rows = list(in_state(state)).await;
        assert_eq!(listed(&rows), expected, "{state:?}");
        assert!(rows.iter().all(|row| row.state == state), "{rows:?}");
    }
    let parked = &list(in_state(OutboxState::Parked)).await[0];
    assert_eq!((parked.attempts, parked.next_attempt, parked.sent_at), (1, None, None));
    assert!(parked.last_error.as_deref().is_some_and(|error| error.contains("too large")), "{parked:?}");
    assert_eq!((parked.created_at, parked.payload_bytes), (mixed.parked.time, mixed.parked.payload.len() as u64));

    let stats = harness.database.stats().await.unwrap();
    assert_eq!(
        (stats.pending, stats.retrying, stats.parked, stats.published),
        (5, 1, 1, 0),
        "waiting messages count as pending"
    );
}

pub async fn row_id_is_stable_across_states<F: DatabaseFixture>(harness: Harness<F>) {
    let messages = series("a", 2);
    harness.enqueue(&messages).await;
    let row = async || -> Vec<(RowId, OutboxState)> {
        let found = harness.database.show(messages[0].id).await.unwrap();
        found.iter().map(|detail| (detail.row.row, detail.row.state)).collect()
    };
    let first = row().await[0].0;
    let leases = harness.lease_all("one").await;
    assert_eq!(row().await, [(first, OutboxState::Pending)]);
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    harness.settle(&leases, &messages[0], decision).await;
    assert_eq!(row().await, [(first, OutboxState::Parked)]);
    harness.redrive(&messages[0]).await;
    assert_eq!(row().await, [(first, OutboxState::Pending)], "the row changed or was duplicated");
    harness.settle(&leases, &messages[0], Decision::Retry { after: LONG, error: "full".into() }).await;
    assert_eq!(row().await, [(first, OutboxState::Retrying)]);
}

pub async fn outbox_filters_return_matching_rows<F: DatabaseFixture>(harness: Harness<F>) {
    let mixed = create_mixed_states(&harness).await;
    let any = OutboxFilter::default;
    let all = harness.database.list(&any(), 100).await.unwrap();
    let middle = all[2].row;
    type Matches<'a> = Box<dyn Fn(&OutboxRow) -> bool + 'a>;
    let cases: Vec<(OutboxFilter, Matches<'_>)> = vec![
        (
            OutboxFilter { message_id: Some(mixed.retrying.id), ..any() },
            Box::new(|r| r.message_id == mixed.retrying.id),
        ),
        (OutboxFilter { message_id: Some(MessageId::new()), ..any() }, Box::new(|_| false)),
        (OutboxFilter { topic: Some(topic("payments")), ..any() }, Box::new(|r| r.topic == topic("payments"))),
        (OutboxFilter { key: Some(key("a")), ..any() }, Box::new(|r| r.key == Some(key("a")))),
        (OutboxFilter { after: Some(middle), ..any() }, Box::new(|r| r.row > middle)),
        (
            // Every field that is set must match.
            OutboxFilter { topic: Some(topic("orders")), key: Some(key("a")), after: Some(all[0].row), ..any() },
            Box::new(|r| r.message_id == mixed.behind_retrying.id),
        ),
        (
            OutboxFilter { key: Some(key("a")), ..in_state(OutboxState::Pending) },
            Box::new(|r| r.topic == topic("payments")),
        ),
        (OutboxFilter { topic: Some(topic("payments")), key: Some(key("c")), ..any() }, Box::new(|_| false)),
        (OutboxFilter { key: Some(key("c")), ..in_state(OutboxState::Retrying) }, Box::new(|_| false)),
    ];
    for (filter, matches) in &cases {
        let found = harness.database.list(filter, 100).await.unwrap();
        let expected: Vec<_> = all.iter().filter(|row| matches(row)).map(|row| row.row).collect();
        assert_eq!(found.iter().map(|row| row.row).collect::<Vec<_>>(), expected, "{filter:?}");
    }
    let parked = harness.database.list(&in_state(OutboxState::Parked), 100).await.unwrap();
    for (filter, is_found) in [
        (OutboxFilter { key: Some(key("b")), ..in_state(OutboxState::Parked) }, true),
        (OutboxFilter { message_id: Some(mixed.parked.id), ..in_state(OutboxState::Parked) }, true),
        (OutboxFilter { topic: Some(topic("payments")), ..in_state(OutboxState::Parked) }, false),
        (OutboxFilter { after: Some(parked[0].row), ..in_state(OutboxState::Parked) }, false),
    ] {
        let found = harness.database.list(&filter, 100).await.unwrap();
        assert_eq!(found.len(), usize::from(is_found), "{filter:?}");
    }
}

pub async fn parked_messages_are_paged<F: DatabaseFixture>(harness: Harness<F>) {
    let messages: Vec<_> = (0..5).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    for message in &messages {
        let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
        harness.settle(&leases, message, decision).await;
    }
    let mut rows: Vec<OutboxRow> = Vec::new();
    loop {
        let filter = OutboxFilter { after: rows.last().map(|row| row.row), ..in_state(OutboxState::Parked) };
        let page = harness.database.list(&filter, 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        rows.extend(page);
    }
    assert_eq!(listed(&rows), ids(&messages));
}

pub async fn show_returns_all_message_fields<F: DatabaseFixture>(harness: Harness<F>) {
    let message = elaborate();
    harness.enqueue(std::slice::from_ref(&message)).await;
    let leases = harness.lease_all("one").await;
    let decisions = [
        None,
        Some(Decision::Retry { after: LONG, error: "full".into() }),
        Some(Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true }),
    ];
    for (decision, state) in
        decisions.into_iter().zip([OutboxState::Pending, OutboxState::Retrying, OutboxState::Parked])
    {
        if let Some(decision) = decision {
            if state == OutboxState::Parked {
                // Otherwise it would not be due for an hour.
                let row = harness.database.show(message.id).await.unwrap()[0].row.row;
                OutboxControl::retry(&harness.database, &[row], "alice").await.unwrap();
            }
            harness.settle(&leases, &message, decision).await;
        }
        let found = harness.database.show(message.id).await.unwrap();
        assert_eq!(found.len(), 1, "{state:?}");
        let shown = &found[0];
        assert_eq!((shown.row.state, shown.row.message_id), (state, message.id));
        assert_eq!((&shown.row.topic, &shown.row.key), (&message.topic, &message.key));
        assert_eq!((shown.sequence, shown.kind.as_str()), (message.sequence, message.kind.as_str()));
        assert_eq!((shown.mode.as_str(), &shown.payload), (message.mode.as_str(), &message.payload));
        assert_eq!(shown.headers.to_string(), message.headers.to_json());
        assert_eq!((shown.row.created_at, shown.row.payload_bytes), (message.time, message.payload.len() as u64));
    }
}

pub async fn show_returns_every_row_with_the_id<F: DatabaseFixture>(harness: Harness<F>) {
    let orders = keyed("a", 1);
    let mut payments = orders.clone();
    payments.topic = topic("payments");
    harness.enqueue(&[orders.clone(), payments, keyed("a", 2)]).await;
    let leases = harness.lease_all("one").await;
    let due = harness.due(&leases).await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let second = due.iter().filter(|entry| entry.message_id == orders.id).nth(1).expect("not both rows are due");
    let settlement = settlement(second, decision);
    OutboxQueue::settle(&harness.database, &leases, &[settlement]).await.unwrap();

    let found = harness.database.show(orders.id).await.unwrap();
    assert!(found.iter().is_sorted_by_key(|detail| detail.row.row));
    let states: Vec<_> = found.iter().map(|detail| (detail.row.topic.as_str(), detail.row.state)).collect();
    assert_eq!(states, [("orders", OutboxState::Pending), ("payments", OutboxState::Parked)]);
    assert!(harness.database.show(MessageId::new()).await.unwrap().is_empty());
}

pub async fn unreadable_row_is_shown_as_stored<F: DatabaseFixture>(harness: Harness<F>) {
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.insert_unreadable(&mut transaction, &topic("orders"), &key("a")).await;
    harness.database.commit(transaction).await.unwrap();
    harness.enqueue(&[keyed("b", 1)]).await;
    let rows = harness.database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 2, "an unreadable row hides others");
    let shown = harness.database.show(rows[0].message_id).await.unwrap();
    assert_eq!(shown[0].headers["x"], "a\nb");
}

pub async fn sent_messages_are_kept_if_configured<F: DatabaseFixture>(harness: Harness<F>) {
    let keeping = harness.fixture.open_keeping_sent(LONG).await;
    let messages = [elaborate(), keyed("a", 1), keyless()];
    harness.enqueue(&messages).await;
    let leases = harness.lease_all("one").await;
    let due = OutboxQueue::next(&keeping, &leases, 10).await.unwrap();
    let sent = messages.iter().take(2).map(|message| {
        let entry = due.iter().find(|entry| entry.message_id == message.id).expect("the message is not due");
        settlement(entry, Decision::Published)
    });
    let settled = OutboxQueue::settle(&keeping, &leases, &sent.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(settled.len(), 2);

    for database in [&keeping, &harness.database] {
        let rows = database.list(&in_state(OutboxState::Sent), 10).await.unwrap();
        assert_eq!(listed(&rows), ids(&messages[..2]));
        assert!(rows.iter().all(|row| row.state == OutboxState::Sent && row.sent_at.is_some()), "{rows:?}");
        let shown = database.show(messages[0].id).await.unwrap();
        assert_eq!((shown.len(), &shown[0].payload), (1, &messages[0].payload));
        assert_eq!(shown[0].headers.to_string(), messages[0].headers.to_json());
        let open = database.list(&OutboxFilter::default(), 10).await.unwrap();
        assert_eq!(listed(&open), [messages[2].id]);
        let stats = database.stats().await.unwrap();
        assert_eq!((stats.pending, stats.published), (1, 2));
    }
    assert_eq!(harness.due_ids(&leases).await, [messages[2].id], "a sent message is due again");
}
