//! Writers in any language: an `INSERT` is enough, and the database refuses what cannot travel.

use std::collections::BTreeSet;
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
    sqlx::query("INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('orders', 'o-1', 'hello')")
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
    let rows = vec!["('orders', '')"; 200].join(", ");
    let insert = format!("INSERT INTO landfall_outbox (topic, payload) VALUES {rows}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(database.pool()).await.unwrap();
    let copy = "INSERT INTO landfall_outbox (topic, payload) SELECT topic, payload FROM landfall_outbox";
    sqlx::raw_sql(copy).execute(database.pool()).await.unwrap();
    let ids: Vec<Uuid> =
        sqlx::query_scalar("SELECT message_id FROM landfall_outbox").fetch_all(database.pool()).await.unwrap();
    // A server elsewhere may have another idea of the time.
    let (earliest, latest) = (before - 300_000, millis() + 300_000);
    for id in &ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122), "{id}");
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        let time = Duration::new(seconds, nanos).as_millis() as u64;
        assert!((earliest..=latest).contains(&time), "{id} says {time}");
    }
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 400);
    let shards: Vec<i8> =
        sqlx::query_scalar("SELECT DISTINCT shard FROM landfall_outbox").fetch_all(database.pool()).await.unwrap();
    assert_eq!(shards.len(), 16, "messages without a key are spread");
}

/// A session that is not strict cuts what is too long. It must not cut a key, which would be another's.
#[tokio::test]
async fn the_table_refuses_what_no_broker_could_take_however_strict_the_session() {
    let Some(database) = migrated().await else { return };
    let cases = [
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('a b', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('a ', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('..', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('a\\nb', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('b\\n', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES ('größe', '')",
        "INSERT INTO landfall_outbox (topic, payload) VALUES (REPEAT('x', 250), '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', '', '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', REPEAT('k', 513), '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', REPEAT('k', 600), '')",
        "INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('t', REPEAT('ö', 300), '')",
        "INSERT INTO landfall_outbox (topic, kind, payload) VALUES ('t', REPEAT('k', 300), '')",
        "INSERT INTO landfall_outbox (topic, mode, payload) VALUES ('t', 'sometimes', '')",
        "INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('t', 'no json', '')",
    ];
    let mut connection = database.pool().acquire().await.unwrap();
    for mode in ["SET sql_mode = 'STRICT_ALL_TABLES'", "SET sql_mode = ''"] {
        sqlx::raw_sql(mode).execute(&mut *connection).await.unwrap();
        for statement in cases {
            let error = sqlx::raw_sql(statement).execute(&mut *connection).await.expect_err(statement);
            assert!(error.as_database_error().is_some(), "{statement}: {error}");
        }
    }
    connection.close_on_drop();
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

/// A key that the column takes and a message cannot have is parked, and people still see it.
#[tokio::test]
async fn a_key_with_a_line_break_is_parked_and_can_be_listed() {
    let Some(database) = migrated().await else { return };
    sqlx::query("INSERT INTO landfall_outbox (topic, `key`, payload) VALUES ('orders', ?, '')")
        .bind("a\nb")
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
