//! What people see of the outbox: every message in exactly one state, found by every filter, with everything in it.

use landfall_core::{
    Database, Decision, ErrorCode, Message, MessageId, OutboxControl, OutboxFilter, OutboxQueue, OutboxRow,
    OutboxState, OutboxView, RowId,
};

use super::stage::{LONG, settlement};
use super::{DatabaseFixture, Stage};
use crate::conformance::sample::{elaborate, ids, key, keyed, keyless, series, topic};

/// A retrying head with one behind it, a parked head with one behind it, and three that wait for nobody.
struct Lot {
    retrying: Message,
    behind_retrying: Message,
    parked: Message,
    behind_parked: Message,
    pending: Vec<Message>,
}

async fn a_lot<F: DatabaseFixture>(stage: &Stage<F>) -> Lot {
    let [retrying, behind_retrying] = [keyed("a", 1), keyed("a", 2)];
    let [parked, behind_parked] = [keyed("b", 1), keyed("b", 2)];
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("payments");
    let pending = vec![elsewhere, keyless(), keyed("c", 1)];
    stage.enqueue(&[retrying.clone(), behind_retrying.clone(), parked.clone(), behind_parked.clone()]).await;
    stage.enqueue(&pending).await;
    let leases = stage.lease_all("one").await;
    stage.settle(&leases, &retrying, Decision::Retry { after: LONG, error: "the broker is full".into() }).await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    stage.settle(&leases, &parked, decision).await;
    Lot { retrying, behind_retrying, parked, behind_parked, pending }
}

fn in_state(state: OutboxState) -> OutboxFilter {
    OutboxFilter { state: Some(state), ..OutboxFilter::default() }
}

fn listed(rows: &[OutboxRow]) -> Vec<MessageId> {
    rows.iter().map(|row| row.message_id).collect()
}

pub async fn every_message_of_the_outbox_is_in_one_state<F: DatabaseFixture>(stage: Stage<F>) {
    let lot = a_lot(&stage).await;
    let list = async |filter: OutboxFilter| stage.database.list(&filter, 100).await.unwrap();
    let open = list(OutboxFilter::default()).await;
    let mut expected = vec![lot.retrying.id, lot.behind_retrying.id, lot.behind_parked.id];
    expected.extend(ids(&lot.pending));
    assert_eq!(listed(&open), expected, "what is still to be sent, in order of row");
    assert!(open.is_sorted_by_key(|row| row.row));

    for (state, expected) in [
        (OutboxState::Retrying, vec![lot.retrying.id]),
        (OutboxState::Waiting, vec![lot.behind_retrying.id, lot.behind_parked.id]),
        (OutboxState::Pending, ids(&lot.pending)),
        (OutboxState::Parked, vec![lot.parked.id]),
        (OutboxState::Sent, vec![]),
    ] {
        let rows = list(in_state(state)).await;
        assert_eq!(listed(&rows), expected, "{state:?}");
        assert!(rows.iter().all(|row| row.state == state), "{rows:?}");
    }
    let parked = &list(in_state(OutboxState::Parked)).await[0];
    assert_eq!((parked.attempts, parked.next_attempt, parked.sent_at), (1, None, None));
    assert!(parked.last_error.as_deref().is_some_and(|error| error.contains("too large")), "{parked:?}");
    assert_eq!((parked.created_at, parked.payload_bytes), (lot.parked.time, lot.parked.payload.len() as u64));

    let stats = stage.database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (5, 1, 1, 0), "waiting is pending");
}

pub async fn a_message_keeps_its_row_from_state_to_state<F: DatabaseFixture>(stage: Stage<F>) {
    let messages = series("a", 2);
    stage.enqueue(&messages).await;
    let row = async || -> Vec<(RowId, OutboxState)> {
        let found = stage.database.show(messages[0].id).await.unwrap();
        found.iter().map(|detail| (detail.row.row, detail.row.state)).collect()
    };
    let first = row().await[0].0;
    let leases = stage.lease_all("one").await;
    assert_eq!(row().await, [(first, OutboxState::Pending)]);
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    stage.settle(&leases, &messages[0], decision).await;
    assert_eq!(row().await, [(first, OutboxState::Parked)]);
    stage.redrive(&messages[0]).await;
    assert_eq!(row().await, [(first, OutboxState::Pending)], "and no copy of it elsewhere");
    stage.settle(&leases, &messages[0], Decision::Retry { after: LONG, error: "full".into() }).await;
    assert_eq!(row().await, [(first, OutboxState::Retrying)]);
}

pub async fn every_filter_of_the_outbox_finds_what_matches<F: DatabaseFixture>(stage: Stage<F>) {
    let lot = a_lot(&stage).await;
    let any = OutboxFilter::default;
    let all = stage.database.list(&any(), 100).await.unwrap();
    let middle = all[2].row;
    type Matches<'a> = Box<dyn Fn(&OutboxRow) -> bool + 'a>;
    let cases: Vec<(OutboxFilter, Matches<'_>)> = vec![
        (OutboxFilter { message_id: Some(lot.retrying.id), ..any() }, Box::new(|r| r.message_id == lot.retrying.id)),
        (OutboxFilter { message_id: Some(MessageId::new()), ..any() }, Box::new(|_| false)),
        (OutboxFilter { topic: Some(topic("payments")), ..any() }, Box::new(|r| r.topic == topic("payments"))),
        (OutboxFilter { key: Some(key("a")), ..any() }, Box::new(|r| r.key == Some(key("a")))),
        (OutboxFilter { after: Some(middle), ..any() }, Box::new(|r| r.row > middle)),
        (
            // Every field that is set must match.
            OutboxFilter { topic: Some(topic("orders")), key: Some(key("a")), after: Some(all[0].row), ..any() },
            Box::new(|r| r.message_id == lot.behind_retrying.id),
        ),
        (
            OutboxFilter { key: Some(key("a")), ..in_state(OutboxState::Pending) },
            Box::new(|r| r.topic == topic("payments")),
        ),
        (OutboxFilter { topic: Some(topic("payments")), key: Some(key("c")), ..any() }, Box::new(|_| false)),
        (OutboxFilter { key: Some(key("c")), ..in_state(OutboxState::Retrying) }, Box::new(|_| false)),
    ];
    for (filter, matches) in &cases {
        let found = stage.database.list(filter, 100).await.unwrap();
        let expected: Vec<_> = all.iter().filter(|row| matches(row)).map(|row| row.row).collect();
        assert_eq!(found.iter().map(|row| row.row).collect::<Vec<_>>(), expected, "{filter:?}");
    }
    let parked = stage.database.list(&in_state(OutboxState::Parked), 100).await.unwrap();
    for (filter, is_found) in [
        (OutboxFilter { key: Some(key("b")), ..in_state(OutboxState::Parked) }, true),
        (OutboxFilter { message_id: Some(lot.parked.id), ..in_state(OutboxState::Parked) }, true),
        (OutboxFilter { topic: Some(topic("payments")), ..in_state(OutboxState::Parked) }, false),
        (OutboxFilter { after: Some(parked[0].row), ..in_state(OutboxState::Parked) }, false),
    ] {
        let found = stage.database.list(&filter, 100).await.unwrap();
        assert_eq!(found.len(), usize::from(is_found), "{filter:?}");
    }
}

pub async fn parked_messages_are_listed_page_by_page<F: DatabaseFixture>(stage: Stage<F>) {
    let messages: Vec<_> = (0..5).map(|n| keyed(&format!("key-{n}"), 1)).collect();
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    for message in &messages {
        let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
        stage.settle(&leases, message, decision).await;
    }
    let mut rows: Vec<OutboxRow> = Vec::new();
    loop {
        let filter = OutboxFilter { after: rows.last().map(|row| row.row), ..in_state(OutboxState::Parked) };
        let page = stage.database.list(&filter, 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        rows.extend(page);
    }
    assert_eq!(listed(&rows), ids(&messages));
}

pub async fn a_message_is_shown_with_everything_in_it<F: DatabaseFixture>(stage: Stage<F>) {
    let message = elaborate();
    stage.enqueue(std::slice::from_ref(&message)).await;
    let leases = stage.lease_all("one").await;
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
                // It would not be due for an hour.
                let row = stage.database.show(message.id).await.unwrap()[0].row.row;
                OutboxControl::retry(&stage.database, &[row], "alice").await.unwrap();
            }
            stage.settle(&leases, &message, decision).await;
        }
        let found = stage.database.show(message.id).await.unwrap();
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

pub async fn every_row_of_an_id_is_shown<F: DatabaseFixture>(stage: Stage<F>) {
    let orders = keyed("a", 1);
    let mut payments = orders.clone();
    payments.topic = topic("payments");
    stage.enqueue(&[orders.clone(), payments, keyed("a", 2)]).await;
    let leases = stage.lease_all("one").await;
    let due = stage.due(&leases).await;
    let decision = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let second = due.iter().filter(|entry| entry.message_id == orders.id).nth(1).expect("both rows are due");
    let settlement = settlement(second, decision);
    OutboxQueue::settle(&stage.database, &leases, &[settlement]).await.unwrap();

    let found = stage.database.show(orders.id).await.unwrap();
    assert!(found.iter().is_sorted_by_key(|detail| detail.row.row));
    let states: Vec<_> = found.iter().map(|detail| (detail.row.topic.as_str(), detail.row.state)).collect();
    assert_eq!(states, [("orders", OutboxState::Pending), ("payments", OutboxState::Parked)]);
    assert!(stage.database.show(MessageId::new()).await.unwrap().is_empty());
}

pub async fn an_unreadable_row_is_shown_as_it_was_stored<F: DatabaseFixture>(stage: Stage<F>) {
    let mut transaction = stage.database.begin().await.unwrap();
    stage.fixture.insert_unreadable(&mut transaction, &topic("orders"), &key("a")).await;
    stage.database.commit(transaction).await.unwrap();
    stage.enqueue(&[keyed("b", 1)]).await;
    let rows = stage.database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 2, "it does not hide the others");
    let shown = stage.database.show(rows[0].message_id).await.unwrap();
    assert_eq!(shown[0].headers["x"], "a\nb");
}

pub async fn a_sent_message_is_kept_where_that_is_asked_for<F: DatabaseFixture>(stage: Stage<F>) {
    let keeping = stage.fixture.open_keeping_sent(LONG).await;
    let messages = [elaborate(), keyed("a", 1), keyless()];
    stage.enqueue(&messages).await;
    let leases = stage.lease_all("one").await;
    let due = OutboxQueue::next(&keeping, &leases, 10).await.unwrap();
    let sent = messages.iter().take(2).map(|message| {
        let entry = due.iter().find(|entry| entry.message_id == message.id).expect("it is due");
        settlement(entry, Decision::Published)
    });
    let settled = OutboxQueue::settle(&keeping, &leases, &sent.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(settled.len(), 2);

    for database in [&keeping, &stage.database] {
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
    assert_eq!(stage.due_ids(&leases).await, [messages[2].id], "what was sent is not due again");
}
