//! Partitions of half messages: created ahead, and dropped when everything in them is decided and expired.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_core::{
    Barriers, CheckBack, Decided, Expiring, HalfMessage, HalfMessageFilter, HalfMessages, HalfState, HalfVerdict,
    Housekeeping, MessageId, Prepared, Timestamp,
};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;
use tokio::task::JoinSet;

use crate::stage::{LONG, SOON, another, message, migrated};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// 2021-03-14, in milliseconds since 1970.
const OLD_DAY: u64 = 18_700 * 24 * 3600 * 1000;
const OLD_PARTITION: &str = "landfall_half_message_20210314";

async fn run(database: &Postgres, statement: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(database.pool()).await.unwrap();
}

async fn exists(database: &Postgres, table: &str) -> bool {
    let exists = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table);
    exists.fetch_one(database.pool()).await.unwrap()
}

async fn count(database: &Postgres, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(database.pool()).await.unwrap()
}

/// A UUIDv7 of the old day.
fn old_id(number: u64) -> MessageId {
    let bits = (u128::from(OLD_DAY) << 80) | (7 << 76) | (2 << 62) | u128::from(number);
    MessageId::from_bytes(bits.to_be_bytes())
}

fn half(id: MessageId) -> HalfMessage {
    HalfMessage {
        message: message("a", 1).with_id(id),
        business_type: "order".into(),
        business_id: "42".into(),
        check_back: CheckBack::default(),
        check_after: LONG,
    }
}

async fn prepare(database: &Postgres, id: MessageId) {
    assert_eq!(database.prepare(&half(id), &[1; 32]).await.unwrap(), Prepared::Fresh(HalfState::Prepared));
}

/// Prepares and rolls back, a month ago.
async fn roll_back(database: &Postgres, id: MessageId) {
    prepare(database, id).await;
    assert_eq!(database.decide(id, HalfVerdict::RolledBack, "sender").await.unwrap(), Decided::Now);
    run(
        database,
        "UPDATE landfall_half_message SET decided_at = now() - interval '30 days' WHERE decided_at IS NOT NULL",
    )
    .await;
}

async fn with_old_partition() -> Option<Postgres> {
    let database = migrated().await?;
    let create = format!(
        "CREATE TABLE {OLD_PARTITION} PARTITION OF landfall_half_message
         FOR VALUES FROM ('2021-03-14') TO ('2021-03-15')"
    );
    run(&database, &create).await;
    Some(database)
}

async fn remove(database: &Postgres) -> u64 {
    database.remove_expired(Expiring::HalfMessages, WEEK, 100).await.unwrap()
}

async fn state(database: &Postgres, id: MessageId) -> Option<HalfState> {
    let filter = HalfMessageFilter { id: Some(id), ..Default::default() };
    database.find_half_messages(&filter, 10).await.unwrap().first().map(|row| row.state)
}

#[tokio::test]
async fn expired_day_is_dropped_as_a_whole() {
    let Some(database) = with_old_partition().await else { return };
    for number in 0..3 {
        roll_back(&database, old_id(number)).await;
    }
    assert_eq!(count(&database, OLD_PARTITION).await, 3);
    assert_eq!(database.remove_expired(Expiring::HalfMessages, WEEK * 10, 100).await.unwrap(), 0);
    assert!(exists(&database, OLD_PARTITION).await, "a day was dropped before its retention ended");
    assert_eq!(remove(&database).await, 3);
    assert!(!exists(&database, OLD_PARTITION).await);
    // The id is stored again, in the default partition.
    prepare(&database, old_id(0)).await;
    assert_eq!(count(&database, "landfall_half_message_default").await, 1);
}

/// With an archive, rows are removed one by one, and then the day.
#[tokio::test]
async fn archived_day_is_dropped_when_it_is_empty() {
    let Some(database) = with_old_partition().await else { return };
    for number in 0..2 {
        roll_back(&database, old_id(number)).await;
    }
    let upkeep = async || database.remove_expired(Expiring::HalfMessages, WEEK * 50_000, 1).await.unwrap();
    let old = database.old_half_messages(WEEK, 10).await.unwrap();
    assert_eq!(old.len(), 2);
    assert_eq!(database.remove_these_half_messages(&[old_id(0)]).await.unwrap(), 1);
    assert_eq!(upkeep().await, 0);
    assert!(exists(&database, OLD_PARTITION).await, "a day was dropped with a row that is not archived");
    assert_eq!(database.remove_these_half_messages(&[old_id(1)]).await.unwrap(), 1);
    assert_eq!(upkeep().await, 0);
    assert!(!exists(&database, OLD_PARTITION).await);
}

#[tokio::test]
async fn undecided_message_keeps_its_day() {
    let Some(database) = with_old_partition().await else { return };
    prepare(&database, old_id(0)).await;
    roll_back(&database, old_id(1)).await;
    assert_eq!(remove(&database).await, 1, "the decided row of an old day is removed");
    assert_eq!(state(&database, old_id(0)).await, Some(HalfState::Prepared));
    assert_eq!(database.decide(old_id(0), HalfVerdict::Committed, "sender").await.unwrap(), Decided::Now);
    assert_eq!(remove(&database).await, 0, "a message that was decided today was removed");
    run(&database, "UPDATE landfall_half_message SET decided_at = now() - interval '30 days'").await;
    assert_eq!(remove(&database).await, 1);
    assert!(!exists(&database, OLD_PARTITION).await);
}

#[tokio::test]
async fn contradicted_message_keeps_its_day() {
    let Some(database) = with_old_partition().await else { return };
    roll_back(&database, old_id(0)).await;
    let contradicted = database.decide(old_id(0), HalfVerdict::Committed, "sender").await.unwrap();
    assert_eq!(contradicted, Decided::Contradiction(HalfVerdict::RolledBack));
    assert_eq!(remove(&database).await, 0);
    assert!(database.acknowledge_contradiction(old_id(0), "alice").await.unwrap());
    assert_eq!(remove(&database).await, 1);
    assert!(!exists(&database, OLD_PARTITION).await);
}

#[tokio::test]
async fn day_in_use_is_left_for_the_next_time() {
    let Some(database) = with_old_partition().await else { return };
    roll_back(&database, old_id(0)).await;
    let mut writer = database.pool().begin().await.unwrap();
    let lock = format!("LOCK TABLE {OLD_PARTITION} IN ROW EXCLUSIVE MODE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *writer).await.unwrap();
    remove(&database).await;
    assert!(exists(&database, OLD_PARTITION).await, "a day was dropped under a writer");
    // The housekeeper waits for nothing, and so does the next writer.
    prepare(&database, old_id(1)).await;
    writer.rollback().await.unwrap();
    assert_eq!(database.decide(old_id(1), HalfVerdict::RolledBack, "sender").await.unwrap(), Decided::Now);
    run(&database, "UPDATE landfall_half_message SET decided_at = now() - interval '30 days'").await;
    eventually(SOON, "the day is dropped", async || {
        remove(&database).await;
        !exists(&database, OLD_PARTITION).await
    })
    .await;
}

#[tokio::test]
async fn partitions_are_created_ahead() {
    let Some(database) = migrated().await else { return };
    let days = "SELECT 'landfall_half_message_' || to_char((now() AT TIME ZONE 'UTC')::date + n, 'YYYYMMDD')
                FROM generate_series(0, 3) n";
    let days: Vec<String> = sqlx::query_scalar(days).fetch_all(database.pool()).await.unwrap();
    for day in &days {
        assert!(exists(&database, day).await, "{day} was not created by the migration");
    }
    run(&database, &format!("DROP TABLE {}", days[2])).await;
    remove(&database).await;
    assert!(exists(&database, &days[2]).await, "{} was not created again", days[2]);
    prepare(&database, MessageId::new()).await;
    assert_eq!(count(&database, "landfall_half_message_default").await, 0);
    // A day whose rows are in the default partition stays there.
    run(&database, &format!("DROP TABLE {}", days[0])).await;
    let early = MessageId::new();
    prepare(&database, early).await;
    assert_eq!(count(&database, "landfall_half_message_default").await, 1);
    remove(&database).await;
    assert!(!exists(&database, &days[0]).await);
    assert_eq!(state(&database, early).await, Some(HalfState::Prepared));
}

#[tokio::test]
async fn rows_without_a_day_are_deleted_in_steps() {
    let Some(database) = migrated().await else { return };
    let ids: Vec<_> = (0..3).map(|number| MessageId::from_business("order", &number.to_string())).collect();
    for id in ids.iter().copied().chain([old_id(0)]) {
        roll_back(&database, id).await;
    }
    assert_eq!(count(&database, "landfall_half_message_other").await, 3);
    assert_eq!(count(&database, "landfall_half_message_default").await, 1);
    for expected in [3, 1, 0] {
        let removed = database.remove_expired(Expiring::HalfMessages, WEEK, 3).await.unwrap();
        assert_eq!(removed, expected);
    }
}

/// A plan that was made for an empty table must not read a full one.
#[tokio::test]
async fn undecided_messages_that_are_not_due_are_not_read() {
    let Some(database) = migrated().await else { return };
    run(&database, "VACUUM ANALYZE").await;
    let mut connection = database.pool().acquire().await.unwrap();
    let claim = "SELECT count(*) FROM landfall_half_message_claim(10, interval '1 hour')";
    for _ in 0..10 {
        let claimed: i64 = sqlx::query_scalar(claim).fetch_one(&mut *connection).await.unwrap();
        assert_eq!(claimed, 0);
    }
    let load = "INSERT INTO landfall_half_message (id, day, state, fingerprint, topic, kind, mode, headers, created_at,
                    payload, next_check_at)
                SELECT gen_random_uuid(), (now() AT TIME ZONE 'UTC')::date, 'prepared', '', 'orders', 'message',
                    'effectively-once', '{}', now(), '',
                    CASE WHEN n <= 5 THEN now() - interval '1 second' ELSE now() + interval '1 day' END
                FROM generate_series(1, 20000) n";
    sqlx::raw_sql(load).execute(&mut *connection).await.unwrap();
    let read = "SELECT coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
                FROM pg_stat_xact_user_tables WHERE relname ~ '^landfall_half_message_'";
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await.unwrap();
    let before: (i64, i64) = sqlx::query_as(read).fetch_one(&mut *connection).await.unwrap();
    let claimed: i64 = sqlx::query_scalar(claim).fetch_one(&mut *connection).await.unwrap();
    let after: (i64, i64) = sqlx::query_as(read).fetch_one(&mut *connection).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.unwrap();
    assert_eq!(claimed, 5);
    assert_eq!(after.0, before.0, "a whole partition was read");
    assert!(after.1 - before.1 < 50, "{} rows were read to claim 5", after.1 - before.1);
}

#[tokio::test]
async fn barrier_on_a_read_only_connection_knows_commits_only() {
    let Some(database) = migrated().await else { return };
    let committed = MessageId::new();
    run(&database, &format!("INSERT INTO landfall_barrier (id) VALUES ('{committed}')")).await;
    let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(database.pool()).await.unwrap();
    run(&database, &format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on")).await;
    let reader = another(&database).await;
    assert_eq!(reader.ask_barrier(committed, Timestamp::now()).await.unwrap(), Some(HalfVerdict::Committed));
    assert_eq!(reader.ask_barrier(MessageId::new(), Timestamp::now()).await.unwrap(), None);
}

/// Concurrent calls share statements; each has its own outcome.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_have_an_outcome_each() {
    const MESSAGES: usize = 150;
    let Some(database) = migrated().await else { return };
    let ids: Vec<MessageId> = (0..MESSAGES).map(|_| MessageId::new()).collect();

    let mut prepares = JoinSet::new();
    // The same id twice with one fingerprint, and once with another one.
    for (id, fingerprint) in ids.iter().flat_map(|id| [(*id, 1), (*id, 1), (*id, 2)]) {
        let database = database.clone();
        prepares.spawn(async move { database.prepare(&half(id), &[fingerprint; 32]).await.unwrap() });
    }
    let prepared = prepares.join_all().await;
    let times = |expected| prepared.iter().filter(|prepared| **prepared == expected).count();
    assert_eq!(times(Prepared::Fresh(HalfState::Prepared)), MESSAGES);
    // Which of two different prepares comes first is a matter of chance.
    assert_eq!(times(Prepared::Repeated(HalfState::Prepared)) + times(Prepared::Conflict), 2 * MESSAGES);
    assert!(times(Prepared::Conflict) >= MESSAGES);

    let mut decisions = JoinSet::new();
    for (id, verdict) in ids.iter().flat_map(|id| [(*id, HalfVerdict::Committed), (*id, HalfVerdict::RolledBack)]) {
        let database = database.clone();
        decisions.spawn(async move { (id, verdict, database.decide(id, verdict, "sender").await.unwrap()) });
    }
    let (first, second): (Vec<_>, Vec<_>) =
        decisions.join_all().await.into_iter().partition(|(.., decided)| *decided == Decided::Now);
    assert_eq!((first.len(), second.len()), (MESSAGES, MESSAGES));
    for (id, verdict, _) in &first {
        let (.., later) = second.iter().find(|(other, ..)| other == id).expect("every id was decided twice");
        assert_eq!(*later, Decided::Contradiction(*verdict), "{id}");
        assert_eq!(state(&database, *id).await, Some(verdict.state()));
    }
    let is_committed =
        |(id, verdict, _): &(MessageId, _, _)| (*verdict == HalfVerdict::Committed).then(|| id.to_string());
    let committed: BTreeSet<String> = first.iter().filter_map(is_committed).collect();
    let enqueued: Vec<String> =
        sqlx::query_scalar("SELECT message_id::text FROM landfall_outbox").fetch_all(database.pool()).await.unwrap();
    assert_eq!((enqueued.len(), BTreeSet::from_iter(enqueued)), (committed.len(), committed));
    assert_eq!(count(&database, "landfall_audit").await, 2 * MESSAGES as i64, "a decision and a contradiction each");
}

/// The server refuses one of the messages; the others are stored.
#[tokio::test(flavor = "multi_thread")]
async fn refused_message_fails_alone() {
    let Some(database) = migrated().await else { return };
    run(&database, "ALTER TABLE landfall_half_message ADD CHECK (business_id <> 'refused')").await;
    let mut prepares = JoinSet::new();
    for number in 0..50 {
        let database = database.clone();
        let refused = HalfMessage { business_id: "refused".into(), ..half(MessageId::new()) };
        let half = if number == 25 { refused } else { half(MessageId::new()) };
        prepares.spawn(async move { database.prepare(&half, &[1; 32]).await.is_ok() });
    }
    assert_eq!(prepares.join_all().await.into_iter().filter(|stored| *stored).count(), 49);
    assert_eq!(count(&database, "landfall_half_message").await, 49);
}
