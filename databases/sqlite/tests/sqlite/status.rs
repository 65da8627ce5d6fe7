//! The view of the outbox, also in SQLite's shell.

use std::process::Command;
use std::time::Duration;

use landfall_core::adapter::{Decision, Settlement};
use landfall_core::{
    CompetingQueue, ErrorCode, ErrorKind, Expiring, Housekeeping, OutboxFilter, OutboxQueue, OutboxState, OutboxView,
    Schema,
};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::{current_test, not_run};

use crate::folder::{TestFolder, lease, message};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A message in every state: sent, retrying with one waiting behind it, parked, pending.
async fn one_of_each(folder: &TestFolder) -> Sqlite {
    let options = Options { keep_sent: Some(DAY), ..Options::default() };
    let database = Sqlite::open(&folder.url(), options).await.unwrap();
    database.migrate().await.unwrap();
    let messages = [message("sent", 1), message("retrying", 1), message("retrying", 2), message("parked", 1)];
    database.append(&messages).await.unwrap();
    database.append(&[message("pending", 1)]).await.unwrap();
    let leases = lease(&database).await;
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
    database
}

#[tokio::test]
async fn view_shows_every_message_in_its_state() {
    let folder = TestFolder::new();
    let database = one_of_each(&folder).await;
    type Shown = (i64, String, String, i64, Option<String>, Option<String>, String, Option<String>);
    let select = "SELECT id, key, state, attempts, next_attempt_at, last_error, created_at, sent_at
        FROM landfall_outbox_status ORDER BY id";
    let rows: Vec<Shown> = sqlx::query_as(select).fetch_all(database.pool()).await.unwrap();
    let states: Vec<_> = rows.iter().map(|row| (row.1.as_str(), row.2.as_str(), row.3)).collect();
    let expected = [
        ("sent", "sent", 0),
        ("retrying", "retrying", 1),
        ("retrying", "waiting", 0),
        ("parked", "parked", 1),
        ("pending", "pending", 0),
    ];
    assert_eq!(states, expected);
    assert_eq!(rows[1].5.as_deref(), Some("BUSY: the broker is full"));
    assert_eq!(rows[3].5.as_deref(), Some("TOO_LARGE: too large"));
    assert_eq!(rows.iter().map(|row| row.7.is_some()).collect::<Vec<_>>(), [true, false, false, false, false]);
    for time in [rows[1].4.as_deref().unwrap(), &rows[0].6, rows[0].7.as_deref().unwrap()] {
        let parsed: landfall_core::Timestamp = time.parse().unwrap();
        assert_eq!(parsed.to_string(), time, "in ISO 8601, to the millisecond, in UTC");
    }
}

#[tokio::test]
async fn view_is_readable_in_the_sqlite3_shell() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return not_run(&current_test(), "the sqlite3 shell is not installed");
    }
    let folder = TestFolder::new();
    drop(one_of_each(&folder).await);
    let output = Command::new("sqlite3")
        .arg(folder.path("landfall.db"))
        .arg("SELECT state, count(*) FROM landfall_outbox_status GROUP BY state ORDER BY state")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "parked|1\npending|1\nretrying|1\nsent|1\nwaiting|1\n");
}

#[tokio::test]
async fn sent_messages_are_deleted_without_keep_sent() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease(&database).await;
    let due = database.next(&leases, 10).await.unwrap();
    let settlement = Settlement { row: due[0].row, shard: due[0].shard, decision: Decision::Published };
    database.settle(&leases, &[settlement]).await.unwrap();
    let sent = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    assert!(database.list(&sent, 10).await.unwrap().is_empty());
    assert_eq!(database.remove_expired(Expiring::Sent, Duration::ZERO, 10).await.unwrap(), 0);
    assert_eq!(database.stats().await.unwrap().published, 1);
}

#[tokio::test]
async fn competing_relays_are_refused_with_a_reason() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    database.append(&[message("a", 1)]).await.unwrap();
    let Err(error) = database.claim(10).await else { panic!("a claim was given") };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("order = \"key\""), "{error}");
    assert_eq!(database.stats().await.unwrap().pending, 1);
}
