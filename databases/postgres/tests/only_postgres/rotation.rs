//! Partitions of the outbox are truncated: no message is lost, no session waits, and the tables stay small.

use std::time::{Duration, Instant};

use landfall_core::adapter::Decision;
use landfall_core::{Database, Housekeeping, OutboxFilter, OutboxQueue, OutboxState, OutboxView, OutboxWriter};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::servers::fresh_postgres_database;
use sqlx::PgConnection;

use crate::stage::{
    LONG, SOON, another, due, lease_all, message, migrated, publish_everything, settlement, until_blocked,
};

/// As in the migration.
const PART: i64 = 65_536;

/// Sets the next id to the first one of the given lap and partition.
async fn go_to_part(database: &Postgres, part: i64) {
    sqlx::query("SELECT setval('landfall_outbox_id_seq', $1, false)")
        .bind((part * PART).max(1))
        .execute(database.pool())
        .await
        .unwrap();
}

/// Counts the rows in each of the four partitions.
async fn parts(database: &Postgres) -> Vec<i64> {
    let mut rows = Vec::new();
    for part in 0..4 {
        let count = format!("SELECT count(*) FROM landfall_outbox_{part}");
        rows.push(sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(database.pool()).await.unwrap());
    }
    rows
}

async fn bytes(database: &Postgres) -> i64 {
    sqlx::query_scalar(
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
         WHERE relkind = 'r' AND relname ~ '^landfall_outbox_[0-3]$'",
    )
    .fetch_one(database.pool())
    .await
    .unwrap()
}

#[tokio::test]
async fn many_rotations_lose_nothing_and_leave_nothing() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut size_of_a_lap = 0;
    for lap in 0..40 {
        go_to_part(&database, lap).await;
        let messages: Vec<_> = (0..300).map(|n| message(&format!("k{}", n % 7), lap * 1000 + n)).collect();
        database.append(&messages).await.unwrap();
        let expected: Vec<_> = messages.iter().map(|message| message.id).collect();
        assert_eq!(publish_everything(&database, &leases).await, expected, "lap {lap}");
        database.rotate().await.unwrap();
        if lap == 4 {
            size_of_a_lap = bytes(&database).await;
        }
    }
    // A session that reads a partition at that moment delays its truncation until the next rotation.
    eventually(SOON, "only the part that is written to holds anything", async || {
        database.rotate().await.unwrap();
        parts(&database).await == [0, 0, 0, 300]
    })
    .await;
    assert!(bytes(&database).await <= size_of_a_lap, "{} > {size_of_a_lap}", bytes(&database).await);
    let stats = database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (0, 40 * 300));
}

#[tokio::test]
async fn relay_rotates_settled_partitions_automatically() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1)]).await.unwrap();
    go_to_part(&database, 1).await;
    let leases = lease_all(&database, "one", LONG).await;
    // Truncation changes the file. Counting the rows would lock the partition and prevent the truncation.
    let file = async || -> i64 {
        let statement = "SELECT relfilenode::bigint FROM pg_class WHERE oid = 'landfall_outbox_0'::regclass";
        sqlx::query_scalar(statement).fetch_one(database.pool()).await.unwrap()
    };
    let before = file().await;
    assert_eq!(publish_everything(&database, &leases).await.len(), 1);
    eventually(SOON, "the part is emptied", async || file().await != before).await;
    assert_eq!(parts(&database).await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn partition_with_an_unsettled_row_stays() {
    let Some(database) = migrated().await else { return };
    let messages = [message("a", 1), message("b", 1)];
    database.append(&messages).await.unwrap();
    go_to_part(&database, 1).await;
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let retry = Decision::Retry { after: LONG, error: "busy".into() };
    database.settle(&leases, &[settlement(&entries[1], retry)]).await.unwrap();
    assert_eq!(database.rotate().await.unwrap(), 0, "the first is still to be sent");
    assert_eq!(publish_everything(&database, &leases).await, [messages[0].id]);
    eventually(SOON, "the part is emptied", async || {
        database.rotate().await.unwrap();
        parts(&database).await == [0, 0, 0, 0]
    })
    .await;
    let rows = database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!((rows.len(), rows[0].state), (1, OutboxState::Retrying), "what waits is elsewhere");
}

/// A writer draws its id while the partition is current, and commits when the others are far ahead.
#[tokio::test]
async fn late_commit_into_an_old_partition_is_not_lost() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let (late, punctual) = (message("a", 1), message("b", 1));
    let mut open = database.begin().await.unwrap();
    database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
    database.append(std::slice::from_ref(&punctual)).await.unwrap();
    go_to_part(&database, 1).await;
    assert_eq!(publish_everything(&database, &leases).await, [punctual.id]);
    assert_eq!(database.rotate().await.unwrap(), 0, "the lock waits for him, and is given up");
    database.commit(open).await.unwrap();
    assert_eq!(database.rotate().await.unwrap(), 0, "his row is not settled");
    assert_eq!(publish_everything(&database, &leases).await, [late.id]);
    eventually(SOON, "the part is emptied", async || {
        database.rotate().await.unwrap();
        parts(&database).await == [0, 0, 0, 0]
    })
    .await;
}

/// The first step of an insert: its transaction gets a transaction id, then draws a row id.
async fn take_id(connection: &mut PgConnection) -> i64 {
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *connection).await.unwrap();
    sqlx::query_scalar("SELECT nextval('landfall_outbox_id_seq')").fetch_one(connection).await.unwrap()
}

/// The second step, which a process that was paused in between does much later.
async fn insert_with(connection: &mut PgConnection, id: i64) {
    let insert = "INSERT INTO landfall_outbox (id, topic, key, payload) OVERRIDING SYSTEM VALUE
                  VALUES ($1, 'orders', 'late', 'x')";
    sqlx::query(insert).bind(id).execute(connection).await.unwrap();
}

/// A writer draws its id before the truncation, and inserts afterwards.
#[tokio::test]
async fn insert_into_a_truncated_partition_is_not_lost() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let mut late = database.pool().begin().await.unwrap();
    let id = take_id(&mut late).await;
    database.append(&[message("a", 2)]).await.unwrap();
    publish_everything(&database, &leases).await;
    go_to_part(&database, 2).await;
    eventually(SOON, "the part is emptied", async || {
        database.rotate().await.unwrap();
        parts(&database).await[0] == 0
    })
    .await;
    insert_with(&mut late, id).await;
    late.commit().await.unwrap();
    assert_eq!(database.rotate().await.unwrap(), 0);
    assert_eq!(publish_everything(&database, &leases).await.len(), 1);
}

/// A writer commits between the check of the partition and the lock on it.
#[tokio::test(flavor = "multi_thread")]
async fn row_inserted_during_the_lock_wait_stops_rotation() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    database.append(&[message("a", 1)]).await.unwrap();
    // The first settlement rotates in the background; no other rotation may run in this test.
    let settling = another(&database).await;
    publish_everything(&settling, &leases).await;
    settling.pool().close().await;
    let mut open = database.begin().await.unwrap();
    let late = message("b", 1);
    database.enqueue(&mut open, std::slice::from_ref(&late)).await.unwrap();
    go_to_part(&database, 1).await;

    // The same function, with a longer lock timeout than a relay has.
    let other = another(&database).await;
    sqlx::query("ALTER FUNCTION landfall_outbox_empty SET lock_timeout = '20s'").execute(other.pool()).await.unwrap();
    let emptying = tokio::spawn(async move {
        sqlx::query("SELECT landfall_outbox_empty(0, false)").execute(other.pool()).await.map(|_| ())
    });
    until_blocked(&database).await;
    database.commit(open).await.unwrap();
    let refused = tokio::time::timeout(SOON, emptying).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("55P03"), "{refused}");
    assert_eq!(due(&database, &leases).await, [late.id]);
}

/// Several relays rotate at once. Each has read the partition before it requests the exclusive lock, which is a
/// deadlock: the server refuses one, and that is not a failure.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_rotations_of_a_partition_do_not_deadlock() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let others = [another(&database).await, another(&database).await, another(&database).await];
    for lap in 0..30 {
        go_to_part(&database, lap).await;
        database.append(&[message("a", lap)]).await.unwrap();
        assert_eq!(publish_everything(&database, &leases).await.len(), 1);
        go_to_part(&database, lap + 1).await;
        let [one, two, three] = &others;
        let (one, two, three) = tokio::join!(one.rotate(), two.rotate(), three.rotate());
        for emptied in [one, two, three] {
            emptied.expect("who has to give way has not failed");
        }
    }
    eventually(SOON, "the parts are emptied", async || {
        database.rotate().await.unwrap();
        parts(&database).await == [0, 0, 0, 0]
    })
    .await;
}

/// A writer that drew its id before the ids reached the next partition holds the partition to be truncated. The next
/// writer into it waits behind the truncation until that gives up, while the first writer stays.
#[tokio::test(flavor = "multi_thread")]
async fn rotation_without_its_lock_gives_up_and_blocks_no_writer() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let (mut holder, mut behind) = (database.pool().begin().await.unwrap(), database.pool().begin().await.unwrap());
    let (id, id_behind) = (take_id(&mut holder).await, take_id(&mut behind).await);
    database.append(&[message("a", 1)]).await.unwrap();
    publish_everything(&database, &leases).await;
    go_to_part(&database, 1).await;
    insert_with(&mut holder, id).await;

    // Rotation never waits longer than its lock timeout, so this ends although the writer stays.
    let rotating = another(&database).await;
    assert_eq!(tokio::time::timeout(SOON, rotating.rotate()).await.expect("it gave up").unwrap(), 0);
    tokio::time::timeout(SOON, insert_with(&mut behind, id_behind)).await.expect("the insert is not blocked");
    behind.commit().await.unwrap();

    holder.commit().await.unwrap();
    let rows = database.list(&OutboxFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 2, "no row was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_blocks_no_writer_and_waits_for_no_reader() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    database.append(&[message("a", 1)]).await.unwrap();
    publish_everything(&database, &leases).await;
    go_to_part(&database, 1).await;

    // As if the partition were being truncated while this is open.
    let mut emptying = database.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE landfall_outbox_0 IN ACCESS EXCLUSIVE MODE").execute(&mut *emptying).await.unwrap();
    let next = message("a", 2);
    let appended = database.append(std::slice::from_ref(&next));
    tokio::time::timeout(SOON, appended).await.expect("a writer does not touch that part").unwrap();
    emptying.rollback().await.unwrap();

    let mut reader = database.pool().begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM landfall_outbox").execute(&mut *reader).await.unwrap();
    let started = Instant::now();
    assert_eq!(database.rotate().await.unwrap(), 0);
    assert!(started.elapsed() < Duration::from_secs(20), "it gave up after {:?}", started.elapsed());
    let limit: Vec<String> =
        sqlx::query_scalar("SELECT unnest(proconfig) FROM pg_proc WHERE proname = 'landfall_outbox_empty'")
            .fetch_all(database.pool())
            .await
            .unwrap();
    assert!(limit.contains(&"lock_timeout=20ms".to_owned()), "{limit:?}");
    reader.rollback().await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, [next.id]);
}

/// The progress table has its own partitions. Valid rows of the older one are copied for every shard.
#[tokio::test]
async fn valid_progress_is_copied_before_its_partition_is_truncated() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<_> = (1..=4).map(|n| message(&format!("k{n}"), n)).collect();
    database.append(&messages).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    database.settle(&leases, &[settlement(&entries[1], Decision::Published)]).await.unwrap();
    sqlx::query("SELECT setval('landfall_outbox_progress_n_seq', 4096)").execute(database.pool()).await.unwrap();
    eventually(SOON, "the older part is emptied", async || {
        database.rotate().await.unwrap();
        let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM landfall_outbox_progress_0")
            .fetch_one(database.pool())
            .await
            .unwrap();
        rows == 0
    })
    .await;
    assert_eq!(database.stats().await.unwrap().published, 1);
    // The relay that had read them continues, and so does another one.
    assert_eq!(due(&another(&database).await, &leases).await.len(), 3);
    database.settle(&leases, &[settlement(&entries[0], Decision::Published)]).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, [messages[2].id, messages[3].id]);
    assert_eq!(database.stats().await.unwrap().published, 4);
}

#[tokio::test]
async fn sent_messages_can_be_kept() {
    let Some(url) = fresh_postgres_database().await else { return };
    let options = Options { max_connections: 6, keep_sent: Some(LONG), ..Options::default() };
    let database = Postgres::connect(&url, options).await.unwrap();
    landfall_core::Schema::migrate(&database).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<_> = (1..=5).map(|n| message(&format!("k{n}"), n)).collect();
    database.append(&messages).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    let retry = Decision::Retry { after: Duration::ZERO, error: "busy".into() };
    let wait = Decision::Retry { after: LONG, error: "busy".into() };
    let decisions = [Decision::Published, retry, wait, Decision::Published, Decision::Published];
    let settlements: Vec<_> =
        entries.iter().zip(decisions).map(|(entry, decision)| settlement(entry, decision)).collect();
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 5);
    eventually(SOON, "the second is due again", async || !due(&database, &leases).await.is_empty()).await;
    assert_eq!(publish_everything(&database, &leases).await, [messages[1].id]);

    let sent = async || {
        let filter = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
        database.list(&filter, 10).await.unwrap().iter().map(|row| row.message_id).collect::<Vec<_>>()
    };
    let expected = [0, 1, 3, 4].map(|n: usize| messages[n].id);
    assert_eq!(sent().await, expected, "before the part is emptied");
    go_to_part(&database, 1).await;
    eventually(SOON, "the part is emptied", async || {
        database.rotate().await.unwrap();
        parts(&database).await == [0, 0, 0, 0]
    })
    .await;
    assert_eq!(sent().await, expected, "and after it");
    let shown = database.show(messages[3].id).await.unwrap().remove(0);
    assert_eq!((shown.row.state, &shown.payload), (OutboxState::Sent, &messages[3].payload));
    assert!(shown.row.sent_at.is_some());
}

#[tokio::test]
async fn day_partition_is_dropped_with_its_last_archived_message() {
    let Some(database) = migrated().await else { return };
    sqlx::raw_sql(
        "SELECT landfall_outbox_sent_day();
         CREATE TABLE landfall_outbox_sent_20200101 PARTITION OF landfall_outbox_sent
             FOR VALUES FROM ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00');
         CREATE TABLE landfall_outbox_sent_20200102 PARTITION OF landfall_outbox_sent
             FOR VALUES FROM ('2020-01-02 00:00:00+00') TO ('2020-01-03 00:00:00+00');
         INSERT INTO landfall_outbox_sent (id, message_id, topic, kind, mode, headers, payload, created_at, sent_at)
         SELECT n, gen_random_uuid(), 'orders', 'paid', 'effectively-once', '{}', '', '2020-01-02', '2020-01-02'
         FROM generate_series(1, 2) n",
    )
    .execute(database.pool())
    .await
    .unwrap();
    let days = async || -> i64 {
        let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'landfall_outbox_sent'::regclass";
        sqlx::query_scalar(count).fetch_one(database.pool()).await.unwrap()
    };
    assert_eq!(days().await, 3);
    assert_eq!(database.remove_these_sent(&[1]).await.unwrap(), 1);
    assert_eq!(days().await, 2, "one of them had nothing in it");
    let old = database.old_sent(LONG, 10).await.unwrap();
    assert_eq!(old.iter().map(|detail| detail.row.row).collect::<Vec<_>>(), [2]);
    assert_eq!(database.remove_these_sent(&[2]).await.unwrap(), 1);
    assert_eq!(days().await, 1, "today stays");
}
