//! A redrive during a park by the relay: they synchronise on the row of the held key. Other races are in the suite.

use landfall_core::adapter::Decision;
use landfall_core::{Database, DeadLetterFilter, DeadLetters, ErrorCode, Message, OutboxQueue};

use crate::stage::{
    LONG, SOON, another, due, lease_all, message, migrated, publish_everything, settlement, until_blocked,
};

fn park() -> Decision {
    Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true }
}

fn filter_of(message: &Message) -> DeadLetterFilter {
    DeadLetterFilter { message_id: Some(message.id), ..Default::default() }
}

/// The relay parks the second row of a key while the first is redriven: the key must stay held for the second.
#[tokio::test(flavor = "multi_thread")]
async fn redrive_waits_for_a_park_in_flight_and_keeps_its_key_held() {
    let Some(database) = migrated().await else { return };
    let messages = [message("a", 1), message("a", 2), message("a", 3)];
    database.append(&messages).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    database.settle(&leases, &[settlement(&entries[0], park())]).await.unwrap();

    // The first half of a settlement that parks the second row.
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
    let (other, filter) = (another(&database).await, filter_of(&messages[0]));
    let redriving = tokio::spawn(async move { other.redrive(&filter, "alice").await.unwrap() });
    until_blocked(&database).await;
    database.commit(parking).await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, redriving).await.unwrap().unwrap().redriven.len(), 1);

    assert!(due(&database, &leases).await.is_empty(), "the second row is parked and holds the key");
    database.redrive(&filter_of(&messages[1]), "alice").await.unwrap();
    let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
    assert_eq!(publish_everything(&database, &leases).await, expected);
}
