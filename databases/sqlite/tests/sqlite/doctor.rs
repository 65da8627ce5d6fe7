//! The doctor on SQLite: every finding is provoked once, and a database with the default settings has none.

use std::path::Path;

use landfall_core::adapter::{Demands, ExpectedTables};
use landfall_core::{Diagnose, Finding, Rank, Schema, Span};
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::{SMALL_DISK, run_on_a_small_disk};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;

const DEMANDS: Demands = Demands { window: Span::Forever };

/// A folder on a disk; the folder for temporary files may be in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

async fn migrated(folder: &Path) -> Sqlite {
    let database = Sqlite::open(folder.join("landfall.db").to_str().unwrap(), Options::default()).await.unwrap();
    database.migrate().await.unwrap();
    database
}

/// Opens the same file with an application's own pool.
async fn on(folder: &Path, change: impl FnOnce(SqliteConnectOptions) -> SqliteConnectOptions) -> Sqlite {
    let settings =
        SqliteConnectOptions::new().filename(folder.join("landfall.db")).synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(change(settings)).await.unwrap();
    Sqlite::from_pool(pool, Options::default()).unwrap()
}

async fn diagnose(database: &Sqlite) -> Vec<Finding> {
    database.diagnose(&DEMANDS).await.unwrap()
}

fn checks(findings: &[Finding]) -> Vec<(&'static str, Rank)> {
    findings.iter().map(|finding| (finding.check, finding.rank)).collect()
}

#[tokio::test]
async fn migrated_database_has_no_findings() {
    let folder = folder();
    let file = folder.path().join("landfall.db");
    let database = Sqlite::open(file.to_str().unwrap(), Options::default()).await.unwrap();
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("sqlite.schema", Rank::Loss)]);
    assert_eq!(found[0].mend, "landfall migrate");
    database.migrate().await.unwrap();
    assert_eq!(diagnose(&database).await, []);
    assert_eq!(diagnose(&on(folder.path(), |settings| settings).await).await, []);
}

#[tokio::test]
async fn asynchronous_commits_are_reported_as_loss() {
    let folder = folder();
    migrated(folder.path()).await;
    for (level, name) in [(SqliteSynchronous::Normal, "NORMAL"), (SqliteSynchronous::Off, "OFF")] {
        let found = diagnose(&on(folder.path(), |settings| settings.synchronous(level)).await).await;
        assert_eq!(checks(&found), [("sqlite.synchronous", Rank::Loss)]);
        assert!(found[0].what.contains(name), "{}", found[0].what);
    }
}

#[tokio::test]
async fn rollback_and_in_memory_journals_are_reported() {
    for (mode, rank) in [(SqliteJournalMode::Delete, Rank::Latency), (SqliteJournalMode::Memory, Rank::Loss)] {
        let folder = folder();
        let database = on(folder.path(), |settings| settings.create_if_missing(true).journal_mode(mode)).await;
        database.migrate().await.unwrap();
        assert_eq!(checks(&diagnose(&database).await), [("sqlite.journal-mode", rank)]);
    }
}

#[tokio::test]
async fn exclusive_locking_mode_is_reported() {
    let folder = folder();
    let alone = |settings: SqliteConnectOptions| {
        let settings = settings.create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        settings.locking_mode(SqliteLockingMode::Exclusive)
    };
    let database = on(folder.path(), alone).await;
    database.migrate().await.unwrap();
    assert_eq!(checks(&diagnose(&database).await), [("sqlite.locking-mode", Rank::Latency)]);
}

#[tokio::test]
async fn missing_index_is_reported_with_its_consequence() {
    let folder = folder();
    let database = migrated(folder.path()).await;
    sqlx::raw_sql(
        "DROP INDEX landfall_outbox_retrying; DROP INDEX landfall_dead_letter_of_group; DROP TABLE landfall_audit",
    )
    .execute(database.pool())
    .await
    .unwrap();
    let found = diagnose(&database).await;
    assert_eq!(
        checks(&found),
        [
            ("sqlite.schema", Rank::Loss),
            ("sqlite.missing-index", Rank::Duplicates),
            ("sqlite.missing-index", Rank::Latency)
        ]
    );
    assert_eq!(found[0].about, "landfall_audit");
    assert_eq!(found[2].about, "index landfall_outbox_retrying of landfall_outbox");
}

#[tokio::test]
async fn every_migrated_index_is_checked() {
    let folder = folder();
    let database = migrated(folder.path()).await;
    // Indexes without a statement belong to primary keys, which exist as long as their tables.
    let made: Vec<(String,)> =
        sqlx::query_as("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY name")
            .fetch_all(database.pool())
            .await
            .unwrap();
    let expected = ExpectedTables::from_ddl(&database.ddl());
    let mut expected: Vec<(String,)> = expected.indexes.into_iter().filter_map(|index| Some((index.name?,))).collect();
    expected.sort_unstable();
    assert_eq!(made, expected);
}

#[tokio::test]
async fn blocked_checkpoint_is_reported_and_a_large_log_is_not() {
    let folder = folder();
    let database = migrated(folder.path()).await;
    sqlx::raw_sql("CREATE TABLE ballast (bytes BLOB)").execute(database.pool()).await.unwrap();
    let file = format!("sqlite:{}", folder.path().join("landfall.db").display());
    let mut reader = SqliteConnection::connect(&file).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM ballast").execute(&mut reader).await.unwrap();
    for _ in 0..9 {
        sqlx::raw_sql("INSERT INTO ballast VALUES (zeroblob(8000000))").execute(database.pool()).await.unwrap();
    }
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("sqlite.checkpoint", Rank::Latency)]);
    assert!(found[0].about.ends_with("landfall.db-wal"), "{}", found[0].about);

    reader.close().await.unwrap();
    assert_eq!(checks(&diagnose(&database).await), [("sqlite.checkpoint", Rank::Latency)], "looking moves nothing");
    sqlx::raw_sql("PRAGMA wal_checkpoint(PASSIVE)").execute(database.pool()).await.unwrap();
    let log = folder.path().join("landfall.db-wal");
    assert!(std::fs::metadata(log).unwrap().len() > 64 << 20, "the file is as large as before");
    assert_eq!(diagnose(&database).await, []);
}

#[tokio::test]
async fn in_memory_database_is_reported_as_loss() {
    let database = Sqlite::open("sqlite::memory:", Options::default()).await.unwrap();
    database.migrate().await.unwrap();
    assert_eq!(checks(&diagnose(&database).await), [("sqlite.in-memory", Rank::Loss)]);
}

#[test]
fn tmpfs_and_a_nearly_full_disk_are_reported() {
    run_on_a_small_disk("doctor::child_diagnoses_a_database_on_a_small_disk", 8);
}

#[tokio::test]
#[ignore = "the test above runs it in a process of its own"]
async fn child_diagnoses_a_database_on_a_small_disk() {
    let folder = std::env::var_os(SMALL_DISK).unwrap();
    let database = migrated(Path::new(&folder)).await;
    let expected = [("sqlite.file-system", Rank::Loss), ("sqlite.disk-full", Rank::Latency)];
    assert_eq!(checks(&diagnose(&database).await), expected);
}
