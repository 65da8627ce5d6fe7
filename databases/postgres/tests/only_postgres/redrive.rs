//! A redrive during a park by the relay: they synchronise on the row of the held key. Other races are in the suite.

use landfall_core::adapter::Decision;
use landfall_core::{DeadLetterFilter, DeadLetters, ErrorCode, Message, OutboxQueue};

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

    let lease = leases.iter().find(|lease| lease.name == entries[1].shard.lease_name()).unwrap();
    let mut parking = database.pool().begin().await.unwrap();
    sqlx::query(
        "SELECT landfall_outbox_settle(ARRAY[$1], ARRAY[$2], ARRAY[$3], landfall_outbox_life(),
            (SELECT jsonb_build_array(jsonb_build_object('shards', ARRAY[shard], 'n', n, 'published', 0,
                's1', s1::text, 's2', s2::text, 'last_id', last_id, 'done', done || $5))
             FROM landfall_outbox_place WHERE shard = $4),
            true, false, '{}', '{}', '{}', '{}', '{}', '{}',
            ARRAY[$5], ARRAY['TOO_LARGE'], ARRAY['too large'], ARRAY[true], ARRAY[false])",
    )
    .bind(&lease.name.0)
    .bind(&lease.holder.0)
    .bind(lease.epoch)
    .bind(entries[1].shard.0 as i16)
    .bind(entries[1].row)
    .execute(&mut *parking)
    .await
    .unwrap();
    let (other, filter) = (another(&database).await, filter_of(&messages[0]));
    let redriving = tokio::spawn(async move { other.redrive(&filter, "alice").await.unwrap() });
    until_blocked(&database).await;
    parking.commit().await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, redriving).await.unwrap().unwrap().redriven.len(), 1);

    assert!(due(&database, &leases).await.is_empty(), "the second row is parked and holds the key");
    database.redrive(&filter_of(&messages[1]), "alice").await.unwrap();
    let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
    assert_eq!(publish_everything(&database, &leases).await, expected);
}
