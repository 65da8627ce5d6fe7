//! SQL writers: an INSERT from another connection, process or language.

use std::process::Command;

use landfall_core::{Mode, OutboxQueue, OutboxWriter};
use landfall_sqlite::Sqlite;
use landfall_testkit::{current_test, not_run};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

use crate::folder::{SOON, TestFolder, lease};

/// A pool without Landfall's settings.
async fn foreign_pool(folder: &TestFolder) -> SqlitePool {
    SqlitePool::connect_with(SqliteConnectOptions::new().filename(folder.path("landfall.db"))).await.unwrap()
}

/// Consumes earlier wake-ups, so that only later commits end the next wait.
async fn hears_nothing_more(database: &Sqlite) {
    database.wait(std::time::Duration::from_millis(1)).await;
}

#[tokio::test]
async fn plain_insert_wakes_the_relay_and_is_a_message() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    hears_nothing_more(&database).await;
    let waiting = database.clone();
    let waiter = tokio::spawn(async move { waiting.wait(SOON * 10).await });

    let foreign = foreign_pool(&folder).await;
    sqlx::query(
        "INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'o-1', CAST('{\"n\":1}' AS BLOB))",
    )
    .execute(&foreign)
    .await
    .unwrap();
    tokio::time::timeout(SOON, waiter).await.expect("the insert ends the wait").unwrap();

    let entries = database.next(&lease(&database).await, 10).await.unwrap();
    assert_eq!(entries.len(), 1);
    let message = entries[0].message.as_ref().unwrap();
    assert_eq!((message.topic.as_str(), message.key.as_ref().unwrap().as_str()), ("orders", "o-1"));
    assert_eq!((&message.payload[..], message.kind.as_str()), (&b"{\"n\":1}"[..], "message"));
    assert_eq!((message.mode, message.sequence), (Mode::EffectivelyOnce, None));

    let id = message.id.as_uuid();
    assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
    let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
    let in_id = i64::try_from(seconds).unwrap() * 1000 + i64::from(nanos / 1_000_000);
    assert_eq!(in_id, message.time.as_millis(), "the id carries the time of the row, to the millisecond");
    let age = landfall_core::Timestamp::now().as_millis() - message.time.as_millis();
    assert!((0..60_000).contains(&age), "the row was made {age} ms ago");
}

#[tokio::test]
async fn generated_ids_are_distinct_and_use_all_variants() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    sqlx::query(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO landfall_outbox (topic, payload) SELECT 'orders', x'00' FROM n",
    )
    .execute(database.pool())
    .await
    .unwrap();
    let entries = database.next(&lease(&database).await, 2000).await.unwrap();
    let ids: std::collections::HashSet<_> = entries.iter().map(|entry| entry.message_id).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| id.as_uuid().get_version_num() == 7));
    let variants: std::collections::BTreeSet<_> = ids.iter().map(|id| id.to_string().as_bytes()[19]).collect();
    assert_eq!(variants.into_iter().collect::<Vec<_>>(), b"89ab");
}

#[tokio::test]
async fn text_payload_and_upper_case_id_are_accepted() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    let id = "01890A5D-AC96-774B-BCCE-B302099A8057";
    sqlx::query("INSERT INTO landfall_outbox (message_id, topic, key, payload) VALUES (?1, 'orders', 7, 'größe')")
        .bind(id)
        .execute(database.pool())
        .await
        .unwrap();
    let entries = database.next(&lease(&database).await, 10).await.unwrap();
    let message = entries[0].message.as_ref().unwrap();
    assert_eq!(message.payload, "größe".as_bytes());
    assert_eq!(message.key.as_ref().unwrap().as_str(), "7", "a number becomes the text of a key");
    assert_eq!(message.id.to_string(), id.to_lowercase());
}

#[tokio::test]
async fn invalid_messages_are_refused_by_the_table() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    let long = "x".repeat(513);
    for (columns, values, constraint) in [
        ("topic, payload", "'', x'00'", "topic_is_valid"),
        ("topic, payload", "'a b', x'00'", "topic_is_valid"),
        ("topic, payload", "'..', x'00'", "topic_is_valid"),
        ("topic, payload", "x'6f', x'00'", "topic_is_valid"),
        ("topic, key, payload", "'t', '', x'00'", "key_is_valid"),
        ("topic, key, payload", "'t', 'a' || char(10) || 'b', x'00'", "key_is_valid"),
        ("topic, key, payload", "'t', 'a' || char(133), x'00'", "key_is_valid"),
        ("topic, key, payload", "'t', 'a' || char(0) || 'b', x'00'", "key_is_valid"),
        ("topic, key, payload", "'t', x'61', x'00'", "key_is_valid"),
        ("topic, key, payload", &format!("'t', '{long}', x'00'"), "key_is_valid"),
        ("topic, mode, payload", "'t', 'twice', x'00'", "mode_is_valid"),
        ("topic, message_id, payload", "'t', 'order-17', x'00'", "message_id_is_a_uuid"),
        ("topic, message_id, payload", "'t', '01890a5dac96-774b-bcce-b302099a8057-', x'00'", "message_id_is_a_uuid"),
        ("topic, created_at, payload", "'t', '2026-11-15 08:00:00', x'00'", "created_at_is_in_milliseconds"),
        ("topic, key", "'t', 'k'", "payload"),
    ] {
        let insert = format!("INSERT INTO landfall_outbox ({columns}) VALUES ({values})");
        let error = sqlx::query(sqlx::AssertSqlSafe(insert)).execute(database.pool()).await.unwrap_err().to_string();
        assert!(error.contains(constraint), "{values}: {error}");
    }
    let accepted = "INSERT INTO landfall_outbox (topic, key, payload) VALUES ('t', '客户 42/eu', x'')";
    sqlx::query(accepted).execute(database.pool()).await.unwrap();
}

#[tokio::test]
async fn python_inserts_with_its_standard_sqlite3() {
    if !Command::new("python3").args(["-c", "import sqlite3"]).status().is_ok_and(|status| status.success()) {
        return not_run(&current_test(), "python3 with its sqlite3 module is not installed");
    }
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    hears_nothing_more(&database).await;
    let script = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
insert = "INSERT INTO landfall_outbox (topic, key, payload) VALUES (?, ?, ?)"
with connection:
    connection.execute(insert, ("orders", "o-1", b'{"from": "python"}'))
for topic, key in [("no spaces please", "o-1"), ("orders", "a\nb")]:
    try:
        connection.execute(insert, (topic, key, b""))
    except sqlite3.IntegrityError as error:
        print(error)
connection.close()
"#;
    let waiting = database.clone();
    let waiter = tokio::spawn(async move { waiting.wait(SOON * 10).await });
    let output = Command::new("python3").args(["-c", script]).arg(folder.path("landfall.db")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let refusals = String::from_utf8(output.stdout).unwrap();
    assert!(refusals.contains("topic_is_valid") && refusals.contains("key_is_valid"), "{refusals}");
    tokio::time::timeout(SOON, waiter).await.expect("a commit in another process ends the wait").unwrap();

    let entries = database.next(&lease(&database).await, 10).await.unwrap();
    assert_eq!(entries.len(), 1);
    let message = entries[0].message.as_ref().unwrap();
    assert_eq!(&message.payload[..], b"{\"from\": \"python\"}");
    assert_eq!(message.id.as_uuid().get_version_num(), 7);
}

#[tokio::test]
async fn every_clone_is_woken_by_commits_only() {
    let folder = TestFolder::new();
    let (first, second) = (folder.migrated().await, folder.open().await);
    let clone = first.clone();
    hears_nothing_more(&first).await;
    hears_nothing_more(&clone).await;

    // A commit without messages does not end the wait.
    sqlx::query("CREATE TABLE elsewhere (n)").execute(second.pool()).await.unwrap();
    let moment = std::time::Duration::from_millis(200);
    let started = std::time::Instant::now();
    first.wait(moment).await;
    assert!(started.elapsed() >= moment, "the wait ended after {:?}", started.elapsed());

    second.append(&[crate::folder::message("a", 1)]).await.unwrap();
    for waiting in [&first, &clone] {
        tokio::time::timeout(SOON, waiting.wait(SOON * 10)).await.expect("each clone hears of the commit");
    }
    clone.wake();
    for waiting in [&first, &clone] {
        tokio::time::timeout(SOON, waiting.wait(SOON * 10)).await.expect("each clone hears the wake");
    }
}
