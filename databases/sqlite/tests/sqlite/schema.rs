//! The tables as printed by `landfall migrate --print`, and unknown schema versions.

use std::process::Command;

use landfall_core::{ErrorKind, OutboxQueue, Schema, TablePrefix};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::{current_test, not_run};
use sqlx::AssertSqlSafe;

use crate::folder::{TestFolder, message};

/// Lists the file's objects, their statements and the schema version.
async fn shape(database: &Sqlite) -> Vec<(String, String)> {
    let tables = "SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name";
    let mut shape: Vec<(String, String)> = sqlx::query_as(tables).fetch_all(database.pool()).await.unwrap();
    let versions = "SELECT 'version', CAST(version AS TEXT) FROM landfall_schema ORDER BY version";
    shape.extend(sqlx::query_as::<_, (String, String)>(versions).fetch_all(database.pool()).await.unwrap());
    let shards = "SELECT 'shard', CAST(shard AS TEXT) FROM landfall_outbox_published";
    shape.extend(sqlx::query_as::<_, (String, String)>(shards).fetch_all(database.pool()).await.unwrap());
    shape
}

#[tokio::test]
async fn printed_ddl_creates_the_migrated_tables() {
    let (by_hand, by_migrate) = (TestFolder::new(), TestFolder::new());
    let (printed, migrated) = (by_hand.open().await, by_migrate.migrated().await);
    sqlx::raw_sql(AssertSqlSafe(printed.ddl())).execute(printed.pool()).await.unwrap();

    printed.check().await.unwrap();
    assert!(!printed.migrate().await.unwrap(), "there is nothing left to do");
    assert_eq!(shape(&printed).await, shape(&migrated).await);
    printed.append(&[message("a", 1)]).await.unwrap();
}

#[tokio::test]
async fn printed_ddl_runs_in_the_sqlite3_shell() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return not_run(&current_test(), "the sqlite3 shell is not installed");
    }
    let folder = TestFolder::new();
    let ddl = folder.path("landfall.sql");
    let database = folder.open().await;
    std::fs::write(&ddl, database.ddl()).unwrap();
    let output = Command::new("sqlite3")
        .args(["-bail", "-init"])
        .arg(&ddl)
        .arg(folder.path("landfall.db"))
        .arg("INSERT INTO landfall_outbox (topic, key, payload) VALUES ('orders', 'o-1', x'00')")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    database.check().await.unwrap();
    assert_eq!(database.next(&crate::folder::lease(&database).await, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    sqlx::query("INSERT INTO landfall_schema (version) VALUES (1000)").execute(database.pool()).await.unwrap();
    let before = shape(&database).await;
    for error in [database.migrate().await.unwrap_err(), database.check().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("at version 1000"), "{error}");
    }
    assert_eq!(shape(&database).await, before);
}

#[tokio::test]
async fn foreign_table_is_left_alone() {
    let folder = TestFolder::new();
    let database = folder.open().await;
    sqlx::query("CREATE TABLE landfall_lease (mine TEXT)").execute(database.pool()).await.unwrap();
    let error = database.migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("choose another table prefix"), "{error}");
    assert_eq!(database.state().await.unwrap().found, 0, "all or nothing");

    let options = Options { prefix: TablePrefix::new("lf2_").unwrap(), ..Options::default() };
    let beside = Sqlite::open(&folder.url(), options).await.unwrap();
    assert!(beside.migrate().await.unwrap());
    beside.append(&[message("a", 1)]).await.unwrap();
}
