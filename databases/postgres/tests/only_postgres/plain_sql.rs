//! SQL writers: the function `landfall_publish`, and rows that cannot be messages.

use landfall_core::adapter::Decision;
use landfall_core::{DeadLetterFilter, DeadLetters, ErrorCode, ErrorKind, OutboxFilter, OutboxQueue, OutboxView};
use uuid::Uuid;

use crate::stage::{LONG, lease_all, migrated, settlement};

#[tokio::test]
async fn publish_function_accepts_json_and_returns_the_id() {
    let Some(database) = migrated().await else { return };
    let statement = r#"SELECT landfall_publish('orders', 'o-1', '{"total": 12}', 'OrderPlaced', '{"tenant": "eu"}')"#;
    let id: Uuid = sqlx::query_scalar(statement).fetch_one(database.pool()).await.unwrap();
    sqlx::query("SELECT landfall_publish('orders', NULL, '[1]')").execute(database.pool()).await.unwrap();

    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let message = entries[0].message.as_ref().unwrap();
    assert_eq!((message.id.as_uuid(), message.kind.as_str()), (id, "OrderPlaced"));
    assert_eq!((&message.payload[..], message.headers.get("tenant")), (&br#"{"total": 12}"#[..], Some("eu")));
    let plain = entries[1].message.as_ref().unwrap();
    assert_eq!((&plain.payload[..], &plain.key, plain.kind.as_str()), (&b"[1]"[..], &None, "message"));
}

/// The table accepts such rows, because constraints would double the cost of every insert; the relay reports the error.
#[tokio::test]
async fn invalid_row_is_unreadable_with_a_reason() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let cases = [
        ("INSERT INTO landfall_outbox (topic, payload) VALUES ('a b', '')", "topic"),
        ("INSERT INTO landfall_outbox (topic, payload) VALUES ('', '')", "topic"),
        ("INSERT INTO landfall_outbox (topic, payload) VALUES ('..', '')", "topic"),
        ("INSERT INTO landfall_outbox (topic, payload) VALUES (E'a\\nb', '')", "topic"),
        ("INSERT INTO landfall_outbox (topic, key, payload) VALUES ('t', '', '')", "key"),
        ("INSERT INTO landfall_outbox (topic, key, payload) VALUES ('t', repeat('k', 513), '')", "key"),
        ("INSERT INTO landfall_outbox (topic, key, payload) VALUES ('t', repeat('k', 100000), '')", "key"),
        ("INSERT INTO landfall_outbox (topic, key, payload) VALUES (repeat('t', 100000), 'k', '')", "topic"),
        ("SELECT landfall_publish('a/b', 'k', '{}')", "topic"),
    ];
    for (statement, what) in cases {
        sqlx::query(statement).execute(database.pool()).await.unwrap();
        let entry = database.next(&leases, 10).await.unwrap().remove(0);
        let error = entry.message.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{statement}");
        assert!(error.to_string().contains(&format!("cannot be a message: {what}")), "{statement}: {error}");
        let park = Decision::Park { code: ErrorCode::VALIDATION, error: error.to_string(), holds_key: true };
        database.settle(&leases, &[settlement(&entry, park)]).await.unwrap();
    }
    let letters = database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    let mut topics: Vec<_> = letters.iter().map(|letter| letter.topic.as_str().len()).collect();
    topics.sort_unstable();
    assert_eq!(topics, [1, 1, 1, 1, 1, 3, 3, 3, 249], "people see all of them");
}

#[tokio::test]
async fn overlong_topic_and_unknown_mode_are_parked_and_listed() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let cases = [
        ("INSERT INTO landfall_outbox (topic, payload) VALUES (repeat('x', 250), '')", "topic"),
        ("INSERT INTO landfall_outbox (topic, mode, payload) VALUES ('orders', 'sometimes', '')", "mode"),
    ];
    for (statement, column) in cases {
        sqlx::query(statement).execute(database.pool()).await.unwrap();
        assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap().len(), 1);
        let entry = database.next(&leases, 10).await.unwrap().remove(0);
        let error = entry.message.as_ref().unwrap_err().to_string();
        assert!(error.contains(column), "{error}");
        let park = Decision::Park { code: ErrorCode::VALIDATION, error, holds_key: true };
        database.settle(&leases, &[settlement(&entry, park)]).await.unwrap();
    }
    let letters = database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    let lengths: std::collections::BTreeSet<_> = letters.iter().map(|letter| letter.topic.as_str().len()).collect();
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [6, 249]);
}
