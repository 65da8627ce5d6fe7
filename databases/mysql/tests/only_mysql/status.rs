//! The view of the outbox, and kept messages.

use std::time::Duration;

use landfall_core::adapter::{Decision, Settlement};
use landfall_core::{ErrorCode, Expiring, Housekeeping, OutboxFilter, OutboxQueue, OutboxState, OutboxView};
use landfall_mysql::Options;

use crate::stage::{LONG, lease_all, message, migrated, with};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn view_shows_every_message_in_its_state() {
    let Some(database) = migrated().await else { return };
    let database = with(&database, Options { keep_sent: Some(DAY), ..Options::default() }).await;
    let messages = [message("sent", 1), message("retrying", 1), message("retrying", 2), message("parked", 1)];
    database.append(&messages).await.unwrap();
    database.append(&[message("pending", 1)]).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let due = database.next(&leases, 10).await.unwrap();
    let decisions = [
        Decision::Published,
        Decision::Retry { after: DAY, error: "BUSY: the broker is full".into() },
        Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true },
    ];
    let settlements: Vec<_> = [&due[0], &due[1], &due[3]]
        .into_iter()
        .zip(decisions)
        .map(|(entry, decision)| Settlement { row: entry.row, shard: entry.shard, decision })
        .collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 3);

    type Shown = (i64, String, String, String, i32, Option<String>, Option<String>, Option<String>);
    let select = "SELECT id, message_id, `key`, state, attempts, CAST(next_attempt_at AS CHAR), last_error,
        CAST(sent_at AS CHAR) FROM landfall_outbox_status ORDER BY id";
    let rows: Vec<Shown> = sqlx::query_as(select).fetch_all(database.pool()).await.unwrap();
    let states: Vec<_> = rows.iter().map(|row| (row.2.as_str(), row.3.as_str(), row.4)).collect();
    let expected = [
        ("sent", "sent", 0),
        ("retrying", "retrying", 1),
        ("retrying", "waiting", 0),
        ("parked", "parked", 1),
        ("pending", "pending", 0),
    ];
    assert_eq!(states, expected);
    for (row, message) in rows.iter().zip(&messages) {
        assert_eq!(row.1, message.id.to_string(), "in its usual notation");
    }
    assert!(rows[1].5.as_deref().unwrap().starts_with("20"), "a readable date: {:?}", rows[1].5);
    assert_eq!(rows[1].6.as_deref(), Some("BUSY: the broker is full"));
    assert_eq!(rows[3].6.as_deref(), Some("TOO_LARGE: too large"));
    assert_eq!(rows.iter().map(|row| row.7.is_some()).collect::<Vec<_>>(), [true, false, false, false, false]);
}

/// Settling with and without kept messages has the same results.
#[tokio::test]
async fn kept_messages_are_removed_in_chunks() {
    let Some(database) = migrated().await else { return };
    let database = with(&database, Options { keep_sent: Some(DAY), ..Options::default() }).await;
    let messages: Vec<_> = (1..=600).map(|sequence| message(&format!("k{}", sequence % 7), sequence)).collect();
    database.append(&messages).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let due = database.next(&leases, 1000).await.unwrap();
    let settlements: Vec<_> = due.iter().map(|entry| crate::stage::settlement(entry, Decision::Published)).collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 600, "more than one statement can hold");
    let sent = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    assert_eq!(database.list(&sent, 1000).await.unwrap().len(), 600);
    assert_eq!(database.stats().await.unwrap().published, 600);
    assert_eq!(database.remove_expired(Expiring::Sent, DAY, 1000).await.unwrap(), 0);
    let mut steps = Vec::new();
    loop {
        steps.push(database.remove_expired(Expiring::Sent, Duration::ZERO, 250).await.unwrap());
        if steps.last() < Some(&250) {
            break;
        }
    }
    assert_eq!(steps, [250, 250, 100]);
}
