//! Writers in any language: an `INSERT`, or the function `landfall_publish`; the database refuses what cannot travel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use landfall_core::{
    DeadLetterFilter, DeadLetters, Decision, ErrorCode, ErrorKind, Kind, Mode, OutboxFilter, OutboxQueue, OutboxView,
};
use uuid::Uuid;

use crate::stage::{LONG, lease_all, migrated, settlement};

#[tokio::test]
async fn an_insert_of_topic_key_and_payload_is_a_message() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.pool().begin().await.unwrap();
    sqlx::query("INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'o-1', 'hello'::bytea)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();

    let leases = lease_all(&database, "one", LONG).await;
    let message = database.next(&leases, 10).await.unwrap().remove(0).message.unwrap();
    assert_eq!((message.topic.as_str(), message.key.unwrap().as_str()), ("orders", "o-1"));
    assert_eq!((&message.payload[..], message.kind, message.mode), (&b"hello"[..], Kind::default(), Mode::default()));
    assert!(message.headers.is_empty() && message.sequence.is_none());
}

#[tokio::test]
async fn the_default_id_is_a_uuid_of_version_7_with_the_time_in_it() {
    let Some(database) = migrated().await else { return };
    let millis = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let before = millis();
    let ids: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO landfall_outbox (topic, payload) SELECT 'orders', '' FROM generate_series(1, 200)
         RETURNING message_id",
    )
    .fetch_all(database.pool())
    .await
    .unwrap();
    // A server elsewhere may have another idea of the time.
    let (earliest, latest) = (before - 300_000, millis() + 300_000);
    for id in &ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122), "{id}");
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        let time = Duration::new(seconds, nanos).as_millis() as u64;
        assert!((earliest..=latest).contains(&time), "{id} says {time}");
    }
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

#[tokio::test]
async fn publish_takes_json_and_answers_with_the_id() {
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

/// The table takes it, because constraints would cost every insert more than all the rest; the relay says what is
/// wrong.
#[tokio::test]
async fn what_no_broker_could_take_is_unreadable_for_the_relay_and_says_why() {
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

/// A key that the column takes and a message cannot have is parked, and people still see it.
#[tokio::test]
async fn a_key_with_a_line_break_is_parked_and_can_be_listed() {
    let Some(database) = migrated().await else { return };
    sqlx::query("INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', E'a\\nb', '')")
        .execute(database.pool())
        .await
        .unwrap();
    assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap()[0].key.as_ref().unwrap().as_str(), "a?b");
    let leases = lease_all(&database, "one", LONG).await;
    let entry = database.next(&leases, 10).await.unwrap().remove(0);
    let error = entry.message.as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().starts_with("outbox row 1 cannot be a message: key"), "{error}");

    let park = Decision::Park { code: ErrorCode::VALIDATION, error: error.to_string(), holds_key: true };
    database.settle(&leases, &[settlement(&entry, park)]).await.unwrap();
    let letters = database.find(&DeadLetterFilter::default(), 10).await.unwrap();
    assert_eq!(letters[0].key.as_ref().unwrap().as_str(), "a?b");
    assert_eq!(letters[0].error_code, "VALIDATION_ERROR");
}

/// So is what the short constraints of the table let through.
#[tokio::test]
async fn a_topic_that_is_too_long_and_a_mode_that_does_not_exist_are_parked_and_can_be_listed() {
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
