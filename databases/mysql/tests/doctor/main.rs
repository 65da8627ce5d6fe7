//! The doctor on MariaDB: every finding is provoked once on a real server, and a server as created by
//! `mariadb-install-db` has none. `server.rs` starts its own server, with every setting wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use landfall_core::adapter::{Demands, ExpectedTables};
use landfall_core::{Diagnose, Finding, Rank, Schema, Span};
use landfall_mysql::{MySql, Options};
use landfall_testkit::servers::{MariaDbServer, mariadb};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, MySqlConnection};

async fn diagnose(database: &MySql) -> Vec<Finding> {
    database.diagnose(&Demands { window: Span::Forever }).await.unwrap()
}

fn checks(findings: &[Finding]) -> Vec<(&'static str, Rank)> {
    findings.iter().map(|finding| (finding.check, finding.rank)).collect()
}

fn has(findings: &[Finding], check: &str) -> bool {
    findings.iter().any(|finding| finding.check == check)
}

/// Returns a migrated database on the private server that these tests share: another server may have findings.
async fn migrated() -> Option<MySql> {
    let database = fresh(mariadb().await?).await;
    database.migrate().await.unwrap();
    Some(database)
}

async fn fresh(server: &MariaDbServer) -> MySql {
    let url = server.fresh_database().await.unwrap();
    MySql::connect(&url, Options { max_connections: 4, ..Options::default() }).await.unwrap()
}

async fn run(database: &MySql, script: &str) {
    sqlx::raw_sql(AssertSqlSafe(script)).execute(database.pool()).await.unwrap();
}

/// Returns the same database through connections that start with the statement `first`.
async fn after(database: &MySql, first: &'static str) -> MySql {
    let pool = MySqlPoolOptions::new().max_connections(2).after_connect(move |connection: &mut MySqlConnection, _| {
        Box::pin(async move { sqlx::raw_sql(first).execute(connection).await.map(drop) })
    });
    let pool = pool.connect_with((*database.pool().connect_options()).clone()).await.unwrap();
    MySql::from_pool(pool, Options::default())
}

/// Returns the same database with a server clock that is an hour ahead.
async fn an_hour_later(database: &MySql) -> MySql {
    after(database, "SET timestamp = UNIX_TIMESTAMP() + 3600").await
}

#[tokio::test(flavor = "multi_thread")]
async fn default_mysql_server_has_no_findings() {
    let Some(server) = mariadb().await else { return };
    let database = fresh(server).await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("mysql.schema", Rank::Loss)]);
    assert_eq!(found[0].mend, "landfall migrate");
    database.migrate().await.unwrap();
    assert_eq!(diagnose(&database).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_changes_of_the_tables_are_reported() {
    let Some(database) = migrated().await else { return };
    run(
        &database,
        "ALTER TABLE landfall_inbox DROP PRIMARY KEY, DROP KEY landfall_inbox_handled;
         ALTER TABLE landfall_dead_letter DROP KEY landfall_dead_letter_of_group;
         ALTER TABLE landfall_audit ENGINE = Aria;
         DROP TABLE landfall_sequence",
    )
    .await;
    let found = diagnose(&database).await;
    let mut said: Vec<_> = found.iter().map(|finding| (finding.check, finding.rank, finding.about.as_str())).collect();
    said.sort_unstable();
    assert_eq!(
        said,
        [
            ("mysql.engine", Rank::Loss, "landfall_audit"),
            ("mysql.missing-index", Rank::Duplicates, "index landfall_dead_letter_of_group of landfall_dead_letter"),
            ("mysql.missing-index", Rank::Duplicates, "primary key of landfall_inbox"),
            ("mysql.missing-index", Rank::Latency, "index landfall_inbox_handled of landfall_inbox"),
            ("mysql.schema", Rank::Loss, "landfall_sequence"),
        ]
    );
    let engine = found.iter().find(|finding| finding.check == "mysql.engine").unwrap();
    run(&database, &engine.mend).await;
    assert!(!has(&diagnose(&database).await, "mysql.engine"), "the suggested fix works");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_schema_version_is_reported_and_skips_table_checks() {
    let Some(database) = migrated().await else { return };
    run(
        &database,
        "INSERT INTO landfall_schema (version, applied_at) VALUES (1000, NOW()); DROP TABLE landfall_sequence",
    )
    .await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("mysql.schema", Rank::Latency)]);
    assert_eq!(found[0].mend, "use a newer landfall");
}

#[tokio::test(flavor = "multi_thread")]
async fn autocommit_off_is_reported_as_loss() {
    let Some(database) = migrated().await else { return };
    let found = diagnose(&after(&database, "SET autocommit = 0").await).await;
    assert_eq!(checks(&found), [("mysql.autocommit", Rank::Loss)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_skew_is_reported_with_its_size() {
    let Some(database) = migrated().await else { return };
    let found = diagnose(&an_hour_later(&database).await).await;
    // With such a clock, the transactions of other tests are old as well.
    let skew = found.iter().find(|finding| finding.check == "mysql.clock-skew").unwrap();
    assert_eq!(skew.rank, Rank::Latency);
    assert!(skew.what.contains("s ahead of this machine's"), "{}", skew.what);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_monitoring_privilege_is_reported_with_its_grant() {
    let Some(database) = migrated().await else { return };
    let name: String = sqlx::query_scalar("SELECT DATABASE()").fetch_one(database.pool()).await.unwrap();
    // An account's name has at most 80 characters.
    let account = format!("clerk_{name}");
    run(&database, &format!("CREATE USER {account}; GRANT SELECT ON {name}.* TO {account}")).await;
    let target = (*database.pool().connect_options()).clone().username(&account);
    let pool = || MySqlPoolOptions::new().connect_with(target.clone());
    let clerk = MySql::from_pool(pool().await.unwrap(), Options::default());
    let found = diagnose(&clerk).await;
    assert_eq!(checks(&found), [("mysql.sight", Rank::Latency); 2]);
    for finding in &found {
        run(&database, &finding.mend.replace("the account in the URL", &account)).await;
    }
    let clerk = MySql::from_pool(pool().await.unwrap(), Options::default());
    assert_eq!(diagnose(&clerk).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_migrated_index_is_checked() {
    let Some(database) = migrated().await else { return };
    let made: Vec<(String, String)> = sqlx::query_as(
        "SELECT DISTINCT table_name, index_name FROM information_schema.statistics WHERE table_schema = DATABASE()",
    )
    .fetch_all(database.pool())
    .await
    .unwrap();
    let expected = ExpectedTables::from_ddl(&database.ddl());
    for (table, name) in &made {
        let name = (name != "PRIMARY").then_some(name);
        let is_expected = expected.indexes.iter().any(|index| index.table == *table && index.name.as_ref() == name);
        assert!(is_expected, "{name:?} of {table}");
    }
    assert_eq!(made.len(), expected.indexes.len());
}
