//! A server with every setting wrong, with replication slots, open transactions and a slow standby.

use landfall_core::{Finding, Rank, Schema};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::servers::{PostgresOptions, PostgresServer};
use landfall_testkit::{current_test, eventually, not_run};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};

use crate::{SOON, an_hour_later, checks, diagnose, fresh, run};

/// Adds three nearly empty segments to the write-ahead log.
const THREE_SEGMENTS: [&str; 3] = ["SELECT pg_logical_emit_message(true, 'doctor', 'x'); SELECT pg_switch_wal()"; 3];

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_server_is_reported() {
    let server = match PostgresServer::start_with(PostgresOptions { fsync: false }).await {
        Ok(server) => server,
        Err(error) => return not_run(&current_test(), &error.to_string()),
    };
    let database = fresh(&server).await;
    for setting in [
        "full_page_writes = off",
        "autovacuum = off",
        "max_prepared_transactions = 5",
        "max_slot_wal_keep_size = '1MB'",
        "superuser_reserved_connections = 197",
    ] {
        run(&database, &format!("ALTER SYSTEM SET {setting}")).await;
    }
    database.pool().close().await;
    // A clean stop: without fsync the new database would not survive a crash.
    server.stop().await.unwrap();
    server.restart().await.unwrap();
    let pool = PgPoolOptions::new().min_connections(4).max_connections(4);
    let pool = pool.connect_with((*database.pool().connect_options()).clone()).await.unwrap();
    let database = Postgres::from_pool(pool, Options::default());
    database.migrate().await.unwrap();

    let mut found = Vec::new();
    eventually(SOON, "the connections are counted", async || {
        found = checks(&diagnose(&database).await);
        found.contains(&("postgres.connections", Rank::Latency))
    })
    .await;
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("postgres.autovacuum", Rank::Latency),
            ("postgres.connections", Rank::Latency),
            ("postgres.fsync", Rank::Loss),
            ("postgres.full-page-writes", Rank::Loss),
            ("postgres.synchronous-commit", Rank::Loss),
        ]
    );
    transactions_that_stay_open(&database).await;
    slots(&database).await;
    standby(&server, &database).await;
}

async fn transactions_that_stay_open(database: &Postgres) {
    let later = an_hour_later(database).await;
    let mut writer = database.pool().begin().await.unwrap();
    sqlx::raw_sql("INSERT INTO landfall_outbox (topic, payload) VALUES ('t', '')").execute(&mut *writer).await.unwrap();
    let mut prepared = PgConnection::connect_with(&database.pool().connect_options()).await.unwrap();
    sqlx::raw_sql(
        "BEGIN; INSERT INTO landfall_outbox (topic, payload) VALUES ('t', ''); PREPARE TRANSACTION 'left behind'",
    )
    .execute(&mut prepared)
    .await
    .unwrap();

    let found = diagnose(&later).await;
    let long = only(&found, "postgres.long-transaction");
    assert_eq!(long.rank, Rank::Latency);
    assert!(long.what.contains("what it enqueued is not sent"), "{}", long.what);
    let left = only(&found, "postgres.prepared-transaction");
    assert_eq!((left.rank, left.about.as_str()), (Rank::Latency, "prepared transaction 'left behind'"));
    let young = diagnose(database).await;
    assert!(!has(&young, "postgres.long-transaction") && !has(&young, "postgres.prepared-transaction"), "{young:?}");

    writer.rollback().await.unwrap();
    sqlx::raw_sql("ROLLBACK PREPARED 'left behind'").execute(&mut prepared).await.unwrap();
    let found = diagnose(&later).await;
    assert!(!has(&found, "postgres.long-transaction") && !has(&found, "postgres.prepared-transaction"), "{found:?}");
    prepared.close().await.unwrap();
    later.pool().close().await;
}

async fn slots(database: &Postgres) {
    run(database, "SELECT pg_create_physical_replication_slot('idle', true)").await;
    let found = diagnose(database).await;
    let idle = only(&found, "postgres.replication-slot");
    assert_eq!((idle.rank, idle.about.as_str()), (Rank::Latency, "replication slot idle"));
    assert!(idle.what.contains("retains"), "{}", idle.what);

    for more in THREE_SEGMENTS {
        run(database, more).await;
    }
    let found = diagnose(database).await;
    let late = only(&found, "postgres.replication-slot");
    assert_eq!(late.rank, Rank::Loss);
    assert!(late.what.contains("about to be lost"), "{}", late.what);

    run(database, "CHECKPOINT").await;
    let found = diagnose(database).await;
    let lost = only(&found, "postgres.replication-slot");
    assert_eq!(lost.rank, Rank::Loss);
    assert!(lost.what.contains("has missed changes"), "{}", lost.what);
    run(database, "SELECT pg_drop_replication_slot('idle')").await;
    assert!(!has(&diagnose(database).await, "postgres.replication-slot"));
}

async fn standby(server: &PostgresServer, database: &Postgres) {
    let standby = server.standby().await.unwrap();
    let name: String = sqlx::query_scalar("SELECT current_database()::text").fetch_one(database.pool()).await.unwrap();
    let reader = Postgres::connect(&standby.url(&name), Options::default()).await.unwrap();
    let found = diagnose(&reader).await;
    assert_eq!(only(&found, "postgres.standby").rank, Rank::Latency);
    let keeps_up = diagnose(database).await;
    assert!(!has(&keeps_up, "postgres.standby-behind") && !has(&keeps_up, "postgres.standby-replay"), "{keeps_up:?}");

    run(&reader, "SELECT pg_wal_replay_pause()").await;
    for more in THREE_SEGMENTS {
        run(database, more).await;
    }
    let comes = async |check: &'static str, rank: Rank| {
        eventually(SOON, check, async || checks(&diagnose(database).await).contains(&(check, rank))).await;
    };
    comes("postgres.standby-replay", Rank::Latency).await;
    standby.pause().await.unwrap();
    for more in THREE_SEGMENTS {
        run(database, more).await;
    }
    comes("postgres.standby-behind", Rank::Loss).await;
    standby.resume().await.unwrap();
}

fn has(findings: &[Finding], check: &str) -> bool {
    findings.iter().any(|finding| finding.check == check)
}

/// Returns the only finding of this check.
fn only<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let mut of_check = findings.iter().filter(|finding| finding.check == check);
    let first = of_check.next();
    assert!(first.is_some() && of_check.next().is_none(), "{check} is not reported once in {findings:?}");
    first.unwrap()
}
