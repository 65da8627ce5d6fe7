//! What the doctor finds in a MariaDB server: each finding provoked once on a real one, and nothing on a server as
//! `mariadb-install-db` makes it. `server.rs` has a server of its own, whose settings are all wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use landfall_core::{Demands, Diagnose, ExpectedTables, Finding, Rank, Schema, Span};
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

fn told(findings: &[Finding], check: &str) -> bool {
    findings.iter().any(|finding| finding.check == check)
}

/// A migrated database on the private server that these tests share: what somebody else runs may well have findings.
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

/// The same database through connections that begin with `first`.
async fn after(database: &MySql, first: &'static str) -> MySql {
    let pool = MySqlPoolOptions::new().max_connections(2).after_connect(move |connection: &mut MySqlConnection, _| {
        Box::pin(async move { sqlx::raw_sql(first).execute(connection).await.map(drop) })
    });
    let pool = pool.connect_with((*database.pool().connect_options()).clone()).await.unwrap();
    MySql::from_pool(pool, Options::default())
}

/// The same database as it looks to somebody whose server's clock is an hour ahead.
async fn an_hour_later(database: &MySql) -> MySql {
    after(database, "SET timestamp = UNIX_TIMESTAMP() + 3600").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_as_it_is_installed_yields_nothing_once_the_tables_are_there() {
    let Some(server) = mariadb().await else { return };
    let database = fresh(server).await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("mysql.schema", Rank::Latency)]);
    assert_eq!(found[0].mend, "landfall migrate");
    database.migrate().await.unwrap();
    assert_eq!(diagnose(&database).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_did_to_the_tables_is_told_with_what_it_costs() {
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
    assert!(!told(&diagnose(&database).await, "mysql.engine"), "what was said to mend it does");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_version_are_told_and_not_looked_at_any_further() {
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
async fn a_session_that_commits_nothing_by_itself_is_a_loss() {
    let Some(database) = migrated().await else { return };
    let found = diagnose(&after(&database, "SET autocommit = 0").await).await;
    assert_eq!(checks(&found), [("mysql.autocommit", Rank::Loss)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_told_with_how_much() {
    let Some(database) = migrated().await else { return };
    let found = diagnose(&an_hour_later(&database).await).await;
    // To such a clock the transactions of other tests look old as well.
    let skew = found.iter().find(|finding| finding.check == "mysql.clock-skew").unwrap();
    assert_eq!(skew.rank, Rank::Latency);
    assert!(skew.what.contains("s ahead of this machine's"), "{}", skew.what);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_does_not_see_enough_is_told_what_to_be_granted() {
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
async fn every_index_that_the_migrations_make_would_be_missed() {
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
