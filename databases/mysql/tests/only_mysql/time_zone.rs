//! A session's time zone has no effect: every time is in UTC, and compared with the server's clock in UTC.

use std::time::Duration;

use landfall_core::adapter::{Decision, Shard};
use landfall_core::{Holder, Leases, OutboxFilter, OutboxQueue, OutboxView, Timestamp};
use landfall_mysql::{MySql, Options};
use sqlx::mysql::MySqlPoolOptions;

use crate::stage::{LONG, lease_all, message, migrated, settlement};

/// Returns the same database through sessions in another time zone.
async fn in_zone(database: &MySql, zone: &str) -> MySql {
    let target = (*database.pool().connect_options()).clone().timezone(zone.to_owned());
    let pool = MySqlPoolOptions::new().max_connections(3).connect_with(target).await.unwrap();
    MySql::from_pool(pool, Options::default())
}

#[tokio::test]
async fn leases_and_retries_do_not_depend_on_the_time_zone() {
    let Some(database) = migrated().await else { return };
    let (east, west) = (in_zone(&database, "+13:00").await, in_zone(&database, "-12:00").await);
    let name = Shard(3).lease_name();
    let lease = east.acquire(&name, &Holder("east".into()), LONG).await.unwrap().unwrap();
    assert!(west.acquire(&name, &Holder("west".into()), LONG).await.unwrap().is_none(), "it is held");
    assert_eq!(west.held("outbox/").await.unwrap(), [name]);
    east.release(&[lease]).await.unwrap();

    let sent = message("a", 1);
    east.append(std::slice::from_ref(&sent)).await.unwrap();
    let leases = lease_all(&west, "west", LONG).await;
    let entries = west.next(&leases, 10).await.unwrap();
    assert_eq!(entries[0].message.as_ref().unwrap().time, sent.time);
    let retry = Decision::Retry { after: Duration::from_secs(1800), error: "later".into() };
    west.settle(&leases, &[settlement(&entries[0], retry)]).await.unwrap();
    for database in [&database, &east, &west] {
        assert!(database.next(&leases, 10).await.unwrap().is_empty(), "it is put off everywhere");
        let row = database.list(&OutboxFilter::default(), 1).await.unwrap().remove(0);
        let seconds = (row.next_attempt.unwrap().as_millis() - Timestamp::now().as_millis()) / 1000;
        assert!((1500..=2100).contains(&seconds), "due in {seconds} s");
        assert_eq!(row.created_at, sent.time);
    }
}

#[tokio::test]
async fn plain_sql_is_enqueued_now_in_every_time_zone() {
    let Some(database) = migrated().await else { return };
    for zone in ["+13:00", "-12:00"] {
        let elsewhere = in_zone(&database, zone).await;
        let insert = "INSERT INTO landfall_outbox (topic, payload) VALUES ('orders', '')";
        sqlx::query(insert).execute(elsewhere.pool()).await.unwrap();
    }
    for row in database.list(&OutboxFilter::default(), 10).await.unwrap() {
        let seconds = (row.created_at.as_millis() - Timestamp::now().as_millis()) / 1000;
        assert!(seconds.abs() < 300, "{seconds} s off");
        let id_seconds = row.message_id.as_uuid().get_timestamp().unwrap().to_unix().0 as i64;
        assert!((id_seconds - Timestamp::now().as_millis() / 1000).abs() < 300, "{}", row.message_id);
    }
    assert!(database.stats().await.unwrap().oldest_seconds < 300.0);
}
