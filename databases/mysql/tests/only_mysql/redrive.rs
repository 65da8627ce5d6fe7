//! Redrives beside live traffic and beside the relay: they meet on the row of the held key.

use landfall_core::{
    Admission, Database, DeadLetterFilter, DeadLetterStatus, DeadLetters, Decision, ErrorCode, Failure, GroupName,
    Inbox, Message, OutboxQueue, Parking, Result, TopicName,
};
use landfall_mysql::MySql;

use crate::stage::{
    LONG, SOON, another, due, lease_all, message, migrated, publish_everything, settlement, somebody_is_blocked,
};

fn stock() -> GroupName {
    GroupName::new("stock").unwrap()
}

fn failure() -> Failure {
    Failure::park(ErrorCode::HANDLER, "not today")
}

fn park() -> Decision {
    Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true }
}

fn of(message: &Message) -> DeadLetterFilter {
    DeadLetterFilter { message_id: Some(message.id), ..Default::default() }
}

async fn write_effect(transaction: &mut <MySql as Database>::Transaction, message: &Message) {
    sqlx::query("INSERT INTO effects (sequence) VALUES (?)")
        .bind(message.sequence)
        .execute(&mut **transaction)
        .await
        .unwrap();
}

/// A consumer on one key: every seventh message fails for good. What the server rolled back is done again.
async fn live_traffic(database: MySql, count: i64) {
    for sequence in 1..=count {
        let message = message("a", sequence);
        while let Err(error) = handle(&database, &message, sequence % 7 == 0).await {
            assert!(error.is_temporary(), "{error}");
        }
    }
}

async fn handle(database: &MySql, message: &Message, fails: bool) -> Result<()> {
    let mut transaction = database.begin().await?;
    if database.admit(&mut transaction, &stock(), message, None).await? == Admission::Fresh {
        if fails {
            database.park(&mut transaction, &stock(), message, None, Parking::with_key(1, &failure())).await?;
        } else {
            write_effect(&mut transaction, message).await;
        }
    }
    database.commit(transaction).await
}

/// Redrives and drains until `count` effects are there; every fifth try fails once more.
async fn drain(database: MySql, count: i64) {
    for attempt in 1.. {
        if let Err(error) = drain_one(&database, attempt % 5 == 0).await {
            assert!(error.is_temporary(), "{error}");
        }
        let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(database.pool()).await.unwrap();
        if effects >= count {
            return;
        }
    }
}

async fn drain_one(database: &MySql, fails: bool) -> Result<()> {
    database.redrive(&DeadLetterFilter::default(), "alice").await?;
    let mut transaction = database.begin().await?;
    if let Some(item) = database.next_redriven(&mut transaction, &stock(), &[]).await? {
        if fails {
            database.park_redriven(&mut transaction, &item, &failure()).await?;
        } else {
            write_effect(&mut transaction, &item.message).await;
            database.complete_redriven(&mut transaction, &item).await?;
        }
    }
    database.commit(transaction).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redrive_that_races_live_traffic_on_one_key_keeps_its_order() {
    const MESSAGES: i64 = 200;
    let Some(database) = migrated().await else { return };
    sqlx::query("CREATE TABLE effects (number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, sequence BIGINT)")
        .execute(database.pool())
        .await
        .unwrap();
    let live = tokio::spawn(live_traffic(another(&database).await, MESSAGES));
    let first = tokio::spawn(drain(another(&database).await, MESSAGES));
    let second = tokio::spawn(drain(another(&database).await, MESSAGES));
    for task in [live, first, second] {
        tokio::time::timeout(3 * SOON, task).await.expect("everything takes effect in the end").unwrap();
    }
    let applied: Vec<i64> =
        sqlx::query_scalar("SELECT sequence FROM effects ORDER BY number").fetch_all(database.pool()).await.unwrap();
    assert_eq!(applied, (1..=MESSAGES).collect::<Vec<_>>());
    let held: i64 =
        sqlx::query_scalar("SELECT count(*) FROM landfall_held_key").fetch_one(database.pool()).await.unwrap();
    assert_eq!(held, 0, "the key is free again");
}

#[tokio::test]
async fn a_key_with_two_parked_rows_is_held_until_both_are_redriven() {
    let Some(database) = migrated().await else { return };
    let messages = [message("a", 1), message("a", 2), message("a", 3)];
    database.append(&messages).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let settlements: Vec<_> = entries[..2].iter().map(|entry| settlement(entry, park())).collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 2);

    database.redrive(&of(&messages[1]), "alice").await.unwrap();
    assert!(due(&database, &leases).await.is_empty(), "the first is still parked");
    database.redrive(&of(&messages[0]), "alice").await.unwrap();
    let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
    assert_eq!(publish_everything(&database, &leases).await, expected);
}

/// The relay parks the second row of a key while somebody redrives the first: the key must stay held for the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_redrive_waits_for_a_park_in_flight_and_leaves_its_key_held() {
    let Some(database) = migrated().await else { return };
    let messages = [message("a", 1), message("a", 2), message("a", 3)];
    database.append(&messages).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    database.settle(&leases, &[settlement(&entries[0], park())]).await.unwrap();

    // What a settlement does to the second row, half-way.
    let mut parking = database.begin().await.unwrap();
    for statement in [
        "INSERT INTO landfall_dead_letter (message_id, topic, `key`, sequence, kind, mode, headers, payload, created_at,
            outbox_id, status, error_code, error, attempts)
         SELECT message_id, topic, `key`, sequence, kind, mode, headers, payload, created_at, id, 'parked', 'X', 'x', 1
         FROM landfall_outbox WHERE sequence = 2",
        "DELETE FROM landfall_outbox WHERE sequence = 2",
        "INSERT INTO landfall_held_key (consumer_group, topic, `key`) VALUES ('', 'orders', 'a')
         ON DUPLICATE KEY UPDATE since = since",
    ] {
        sqlx::query(statement).execute(&mut *parking).await.unwrap();
    }
    let (other, filter) = (another(&database).await, of(&messages[0]));
    let redriving = tokio::spawn(async move { other.redrive(&filter, "alice").await.unwrap() });
    somebody_is_blocked(&database).await;
    database.commit(parking).await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, redriving).await.unwrap().unwrap().redriven.len(), 1);

    assert!(due(&database, &leases).await.is_empty(), "the second row is parked and holds the key");
    database.redrive(&of(&messages[1]), "alice").await.unwrap();
    let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
    assert_eq!(publish_everything(&database, &leases).await, expected);
}

/// One event may go to two topics under one id. Each row is parked by itself, and each key released by itself.
#[tokio::test]
async fn one_id_on_two_topics_is_parked_twice_and_both_come_back() {
    let Some(database) = migrated().await else { return };
    let first = message("a", 1);
    let mut second = first.clone();
    second.topic = TopicName::new("payments").unwrap();
    database.append(&[first.clone(), second]).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, park())).collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 2);

    assert_eq!(database.find(&of(&first), 10).await.unwrap().len(), 2);
    assert_eq!(database.redrive(&of(&first), "alice").await.unwrap().redriven.len(), 2);
    let letters = database.find(&of(&first), 10).await.unwrap();
    assert!(letters.iter().all(|letter| letter.status == DeadLetterStatus::Done), "{letters:?}");
    assert_eq!(publish_everything(&database, &leases).await.len(), 2);
    let held: i64 =
        sqlx::query_scalar("SELECT count(*) FROM landfall_held_key").fetch_one(database.pool()).await.unwrap();
    assert_eq!(held, 0);
}

/// Completing what nobody redrives would commit an effect that belongs to nothing.
#[tokio::test]
async fn a_dead_letter_that_is_done_cannot_be_completed_again() {
    let Some(database) = migrated().await else { return };
    let message = message("a", 1);
    let mut transaction = database.begin().await.unwrap();
    database.admit(&mut transaction, &stock(), &message, None).await.unwrap();
    database.park(&mut transaction, &stock(), &message, None, Parking::with_key(1, &failure())).await.unwrap();
    database.commit(transaction).await.unwrap();
    database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap();

    let mut transaction = database.begin().await.unwrap();
    let item = database.next_redriven(&mut transaction, &stock(), &[]).await.unwrap().unwrap();
    database.complete_redriven(&mut transaction, &item).await.unwrap();
    let error = database.complete_redriven(&mut transaction, &item).await.unwrap_err();
    assert_eq!(error.kind(), landfall_core::ErrorKind::Conflict, "{error}");
}
