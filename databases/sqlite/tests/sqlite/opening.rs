//! Opening: missing files are created, and files that are not databases are refused with a reason.

use landfall_core::{ErrorKind, OutboxQueue, OutboxView, Schema, TablePrefix};
use landfall_sqlite::{Options, Sqlite};

use crate::folder::{TestFolder, lease, message};

async fn refusal(url: &str) -> landfall_core::Error {
    Sqlite::open(url, Options::default()).await.expect_err("it cannot be opened")
}

#[tokio::test]
async fn missing_file_is_created_with_durable_settings() {
    let folder = TestFolder::new();
    let file = folder.path("not/yet/there/orders.db");
    let database = Sqlite::open(file.to_str().unwrap(), Options::default()).await.unwrap();
    assert!(file.is_file());
    for (pragma, expected) in
        [("journal_mode", "wal"), ("synchronous", "2"), ("foreign_keys", "1"), ("busy_timeout", "30000")]
    {
        let query = format!("SELECT CAST({pragma} AS TEXT) FROM pragma_{pragma}");
        let query = query.replace("CAST(busy_timeout", "CAST(timeout");
        let value: String = sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(database.pool()).await.unwrap();
        assert_eq!(value, expected, "{pragma}");
    }
}

#[tokio::test]
async fn folder_is_not_a_database() {
    let folder = TestFolder::new();
    let error = refusal(folder.path("").to_str().unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("is a folder, not a SQLite database file"), "{error}");
}

#[tokio::test]
async fn text_file_is_refused_and_left_alone() {
    let folder = TestFolder::new();
    for text in ["hello\n".to_owned(), "hello\n".repeat(1000)] {
        let file = folder.path("notes.txt");
        std::fs::write(&file, &text).unwrap();
        let error = refusal(&format!("sqlite:{}", file.display())).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("notes.txt: the file is not a SQLite database"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}

#[tokio::test]
async fn folder_that_cannot_be_created_is_reported() {
    let folder = TestFolder::new();
    std::fs::write(folder.path("file"), "").unwrap();
    let error = refusal(folder.path("file/orders.db").to_str().unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("cannot be created"), "{error}");
}

#[tokio::test]
async fn no_file_is_created_if_the_url_forbids_it() {
    let folder = TestFolder::new();
    let error = refusal(&format!("{}?mode=rw", folder.url())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("the file cannot be opened"), "{error}");
    assert!(!folder.path("landfall.db").exists());
}

#[tokio::test]
async fn schema_in_the_prefix_is_refused_before_any_file_is_created() {
    let folder = TestFolder::new();
    let options = Options { prefix: TablePrefix::new("billing.landfall_").unwrap(), ..Options::default() };
    let error = Sqlite::open(&folder.url(), options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("SQLite has no schemas"), "{error}");
    assert!(!folder.path("landfall.db").exists());
}

#[tokio::test]
async fn call_without_tables_reports_what_to_do() {
    let folder = TestFolder::new();
    let database = folder.open().await;
    for error in [database.stats().await.unwrap_err(), database.append(&[message("a", 1)]).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("run `landfall migrate`"), "{error}");
    }
}

#[tokio::test]
async fn many_processes_can_open_a_new_file_at_once() {
    let folder = TestFolder::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = folder.url();
        tasks.spawn(async move { Sqlite::open(&url, Options::default()).await.unwrap().migrate().await.unwrap() });
    }
    let changed = tasks.join_all().await;
    assert_eq!(changed.into_iter().filter(|changed| *changed).count(), 1);
}

#[tokio::test]
async fn in_memory_databases_are_separate() {
    let database = Sqlite::open("sqlite::memory:", Options::default()).await.unwrap();
    let other = Sqlite::open("sqlite::memory:", Options::default()).await.unwrap();
    database.migrate().await.unwrap();
    database.append(&[message("a", 1), message("a", 2)]).await.unwrap();
    tokio::time::timeout(crate::folder::SOON, database.wait(crate::folder::SOON * 10))
        .await
        .expect("the append ends the wait");

    // Messages of SQL writers are found as well.
    let entries = database.next(&lease(&database).await, 10).await.unwrap();
    assert_eq!(entries.len(), 2);
    sqlx::query("INSERT INTO landfall_outbox (topic, payload) VALUES ('t', x'')")
        .execute(database.pool())
        .await
        .unwrap();
    tokio::time::timeout(crate::folder::SOON, database.wait(crate::folder::SOON * 10))
        .await
        .expect("the insert ends the wait");
    assert_eq!(other.state().await.unwrap().found, 0);
}

#[tokio::test]
async fn damaged_file_is_reported_and_not_read() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    // Enough to fill the second half of the file.
    let messages: Vec<_> = (1..=5000).map(|sequence| message("a", sequence)).collect();
    database.append(&messages).await.unwrap();
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(database.pool()).await.unwrap();
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(database.pool()).await.unwrap();
    drop(database);

    let file = std::fs::OpenOptions::new().write(true).open(folder.path("landfall.db")).unwrap();
    for page in pages.unsigned_abs() / 2..pages.unsigned_abs() {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 4096], page * 4096).unwrap();
    }
    let database = folder.open().await;
    let error = database.stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the file is damaged"), "{error}");
}
