//! The tables in another database, created from the printed statements, resumed after an interruption, and refused if
//! they are not Landfall's.

use landfall_core::{ErrorKind, OutboxQueue, OutboxView, Schema, TablePrefix};
use landfall_mysql::{MySql, Options};
use landfall_testkit::servers::fresh_mysql_database;

use crate::stage::{LONG, lease_all, message, migrated, open, publish_everything};

async fn with_prefix(url: &str, prefix: &str) -> MySql {
    let options = Options { prefix: TablePrefix::new(prefix).unwrap(), max_connections: 4, ..Options::default() };
    MySql::connect(url, options).await.unwrap()
}

async fn run(database: &MySql, script: &str) -> sqlx::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(database.pool()).await.map(drop)
}

#[tokio::test]
async fn tables_can_be_in_another_database() {
    let Some(url) = fresh_mysql_database().await else { return };
    // Derived from the name of the test's database.
    let other = format!("lf_{}", &url.rsplit('/').next().unwrap()[40..]);
    let (plain, billing, same) = (
        open(&url).await,
        with_prefix(&url, &format!("{other}.landfall_")).await,
        with_prefix(&url, &format!("{other}.x_")).await,
    );
    for database in [&plain, &billing, &same] {
        assert!(database.migrate().await.unwrap());
        assert!(!database.migrate().await.unwrap());
        database.check().await.unwrap();
    }
    billing.append(&[message("a", 1)]).await.unwrap();
    let insert = format!("INSERT INTO {other}.landfall_outbox (topic, `key`, payload) VALUES ('orders', 'a', '')");
    run(&plain, &insert).await.unwrap();
    let leases = lease_all(&billing, "one", LONG).await;
    assert_eq!(publish_everything(&billing, &leases).await.len(), 2);
    assert_eq!(billing.stats().await.unwrap().published, 2);
    assert_eq!(plain.stats().await.unwrap().published + same.stats().await.unwrap().published, 0);
    run(&plain, &format!("DROP DATABASE {other}")).await.unwrap();
}

/// Lists the definition of every table and view, and their initial rows.
async fn shape(database: &MySql) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name",
    )
    .fetch_all(database.pool())
    .await
    .unwrap();
    let mut shape = Vec::new();
    for table in tables {
        let statement = format!("SHOW CREATE TABLE {table}");
        let row = sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_one(database.pool()).await.unwrap();
        shape.push(sqlx::Row::try_get::<String, _>(&row, 1).unwrap());
    }
    let shards: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM landfall_outbox_published").fetch_one(database.pool()).await.unwrap();
    shape.push(format!("{shards} shards"));
    shape
}

#[tokio::test]
async fn printed_statements_create_the_migrated_tables() {
    let (Some(migrated), Some(printed_url)) = (migrated().await, fresh_mysql_database().await) else { return };
    let printed = open(&printed_url).await;
    run(&printed, &printed.ddl()).await.unwrap();
    assert_eq!(shape(&printed).await, shape(&migrated).await);
    printed.check().await.unwrap();
    assert!(!printed.migrate().await.unwrap(), "there is nothing left to do");
}

/// DDL commits implicitly, so a migration can stop after any statement. The next one resumes it.
#[tokio::test]
async fn interrupted_migration_is_resumed() {
    let Some(whole) = migrated().await else { return };
    let expected = shape(&whole).await;
    let script = whole.ddl();
    let statements: Vec<&str> = script.split_inclusive(";\n").collect();
    assert!(statements.len() > 10);
    // A changed table is resumed in another way than a created one.
    let after_changes = (1..statements.len()).filter(|done| statements[done - 1].contains("ALTER TABLE"));
    let ends = [1, 2, 3, 4, statements.len() - 2, statements.len() - 1];
    for done in ends.into_iter().chain(after_changes) {
        let Some(url) = fresh_mysql_database().await else { return };
        let database = open(&url).await;
        run(&database, &statements[..done].concat()).await.unwrap();
        let error = database.check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "after {done}: {error}");
        assert!(database.migrate().await.unwrap(), "after {done}");
        database.check().await.unwrap();
        assert_eq!(shape(&database).await, expected, "after {done}");
    }
}

/// Only tables of an interrupted migration may exist.
#[tokio::test]
async fn foreign_table_is_refused_on_every_attempt() {
    let Some(url) = fresh_mysql_database().await else { return };
    let database = open(&url).await;
    run(&database, "CREATE TABLE landfall_outbox (id INT)").await.unwrap();
    for _ in 0..2 {
        let error = database.migrate().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
        assert!(error.to_string().contains("another table prefix"), "{error}");
    }
    run(&database, "SELECT id FROM landfall_outbox").await.unwrap();
}
