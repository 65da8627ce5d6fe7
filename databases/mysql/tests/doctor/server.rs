//! A server with every setting wrong that is also a replica, with transactions that stay open.

use landfall_core::{Finding, Message, OutboxQueue, Rank, Schema, TopicName};
use landfall_mysql::MySql;
use landfall_testkit::servers::{MariaDbOptions, MariaDbServer};
use landfall_testkit::{current_test, eventually, not_run};
use sqlx::{Connection, MySqlConnection, Row};

use crate::{after, an_hour_later, checks, diagnose, fresh, has, run};

const SOON: std::time::Duration = std::time::Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_server_is_reported() {
    let settings = [
        "innodb-flush-method=nosync",
        "skip-innodb-doublewrite",
        "log-bin=binlog",
        "server-id=7",
        "sync-binlog=0",
        // It becomes a replica of itself.
        "replicate-same-server-id",
    ];
    let options = MariaDbOptions { fsync: false, settings: settings.map(str::to_owned).to_vec(), ..Default::default() };
    let server = match MariaDbServer::start_with(options).await {
        Ok(server) => server,
        Err(error) => return not_run(&current_test(), &error.to_string()),
    };
    let database = fresh(&server).await;
    database.migrate().await.unwrap();
    assert_eq!(
        checks(&diagnose(&database).await),
        [
            ("mysql.flush-log", Rank::Loss),
            ("mysql.sync-binlog", Rank::Loss),
            ("mysql.doublewrite", Rank::Loss),
            ("mysql.flush-method", Rank::Loss),
        ]
    );
    run(&database, "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL sync_binlog = 1").await;
    assert_eq!(
        checks(&diagnose(&database).await),
        [("mysql.doublewrite", Rank::Loss), ("mysql.flush-method", Rank::Loss)],
        "the suggested fixes work"
    );
    binary_log_and_replicas(&database).await;
    transactions_that_stay_open(&database).await;
    connections(&database).await;
}

async fn binary_log_and_replicas(database: &MySql) {
    let mut format = MySqlConnection::connect_with(&database.pool().connect_options()).await.unwrap();
    sqlx::raw_sql("SET GLOBAL binlog_format = 'STATEMENT'").execute(&mut format).await.unwrap();
    // A session keeps the server's format from when it began.
    let statements = after(database, "DO 0").await;
    let found = diagnose(&statements).await;
    assert_eq!(only(&found, "mysql.binlog-format").rank, Rank::Latency);
    let message = Message::new(TopicName::new("orders").unwrap(), "{}");
    let refused = statements.append(std::slice::from_ref(&message)).await;
    assert!(refused.is_err(), "the finding says so");
    statements.pool().close().await;
    sqlx::raw_sql("SET GLOBAL binlog_format = 'ROW'").execute(&mut format).await.unwrap();
    format.close().await.unwrap();

    // A commit that no replica acknowledges turns semi-synchronous replication off.
    run(database, "SET GLOBAL rpl_semi_sync_master_timeout = 1; SET GLOBAL rpl_semi_sync_master_enabled = ON").await;
    run(database, "INSERT INTO landfall_outbox (topic, payload) VALUES ('t', '')").await;
    let mut found = Vec::new();
    eventually(SOON, "the server has stopped waiting for replicas", async || {
        found = diagnose(database).await;
        has(&found, "mysql.semi-sync")
    })
    .await;
    assert_eq!(only(&found, "mysql.semi-sync").rank, Rank::Loss);
    run(database, "SET GLOBAL rpl_semi_sync_master_enabled = OFF").await;
    assert!(!has(&diagnose(database).await, "mysql.semi-sync"));

    run(database, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'replica'").await;
    let found = diagnose(database).await;
    assert_eq!(only(&found, "mysql.replica").rank, Rank::Loss);
    let lag = only(&found, "mysql.replica-lag");
    assert_eq!((lag.rank, lag.about.as_str()), (Rank::Latency, "replica of 127.0.0.1"));
    assert!(lag.what.contains("it was stopped"), "{}", lag.what);

    behind_itself(database).await;
    run(database, "SET GLOBAL read_only = ON").await;
    let found = diagnose(database).await;
    assert_eq!(only(&found, "mysql.read-only").rank, Rank::Latency);
    assert!(!has(&found, "mysql.replica"), "no writes can be lost here");
    run(database, "SET GLOBAL read_only = OFF; RESET SLAVE ALL").await;
    let found = diagnose(database).await;
    assert!(!["mysql.read-only", "mysql.replica", "mysql.replica-lag"].iter().any(|check| has(&found, check)));
}

/// The server replicates its own binary log an hour late, in which the next write is ten minutes old.
async fn behind_itself(database: &MySql) {
    run(database, "RESET SLAVE ALL; FLUSH BINARY LOGS").await;
    let row = sqlx::raw_sql("SHOW MASTER STATUS").fetch_one(database.pool()).await.unwrap();
    let file: String = row.try_get_unchecked("File").unwrap();
    let old = after(database, "SET timestamp = UNIX_TIMESTAMP() - 600").await;
    run(&old, "INSERT INTO landfall_outbox (topic, payload) VALUES ('t', '')").await;
    old.pool().close().await;
    let port = database.pool().connect_options().get_port();
    run(
        database,
        &format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root',
                 MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = 4, MASTER_DELAY = 3600; START SLAVE"
        ),
    )
    .await;
    until(database, "the server is behind its source", |found| {
        found.iter().any(|finding| finding.check == "mysql.replica-lag" && finding.what.contains(" s behind 127.0.0.1"))
    })
    .await;
    run(database, "STOP SLAVE").await;
}

async fn transactions_that_stay_open(database: &MySql) {
    let later = an_hour_later(database).await;
    let mut writer = database.pool().begin().await.unwrap();
    let insert = "INSERT INTO landfall_outbox (topic, payload) VALUES ('t', '')";
    sqlx::raw_sql(insert).execute(&mut *writer).await.unwrap();
    let mut prepared = MySqlConnection::connect_with(&database.pool().connect_options()).await.unwrap();
    for step in ["XA START 'left behind'", insert, "XA END 'left behind'", "XA PREPARE 'left behind'"] {
        sqlx::raw_sql(step).execute(&mut prepared).await.unwrap();
    }
    prepared.close().await.unwrap();

    let found = until(&later, "the coordinator has disconnected", |found| {
        has(found, "mysql.prepared-transaction") && has(found, "mysql.long-transaction")
    })
    .await;
    assert_eq!(only(&found, "mysql.prepared-transaction").rank, Rank::Latency);
    let long = only(&found, "mysql.long-transaction");
    assert_eq!(long.rank, Rank::Latency);
    assert!(long.what.contains("its 1 changed rows"), "{}", long.what);
    let young = diagnose(database).await;
    assert!(!has(&young, "mysql.long-transaction") && !has(&young, "mysql.prepared-transaction"), "{young:?}");

    writer.rollback().await.unwrap();
    run(database, "XA ROLLBACK 'left behind'").await;
    until(&later, "both transactions have ended", |found| {
        !has(found, "mysql.prepared-transaction") && !has(found, "mysql.long-transaction")
    })
    .await;
    later.pool().close().await;
}

/// Waits for findings that satisfy a condition. The server caches its list of transactions until it was not read for a
/// tenth of a second, so polling faster returns the same list.
async fn until(database: &MySql, what: &str, is_so: impl Fn(&[Finding]) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    eventually(SOON, what, async || {
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        found = diagnose(database).await;
        is_so(&found)
    })
    .await;
    found
}

async fn connections(database: &MySql) {
    run(database, "SET GLOBAL max_connections = 10").await;
    let mut open = Vec::new();
    while let Ok(one) = MySqlConnection::connect_with(&database.pool().connect_options()).await {
        open.push(one);
    }
    let found = diagnose(database).await;
    assert_eq!(only(&found, "mysql.connections").rank, Rank::Latency);
    run(database, "SET GLOBAL max_connections = 200").await;
    assert!(!has(&diagnose(database).await, "mysql.connections"));
    drop(open);
}

/// Returns the only finding of this check.
fn only<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let mut of_check = findings.iter().filter(|finding| finding.check == check);
    let first = of_check.next();
    assert!(first.is_some() && of_check.next().is_none(), "{check} is not reported once in {findings:?}");
    first.unwrap()
}
