//! The tables: in a schema of their own, from the printed statements, and refused when they are from the future.

use landfall_core::{ErrorKind, Message, OutboxQueue, OutboxView, Schema, TablePrefix, TopicName};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::servers::fresh_postgres_database;

use crate::stage::{LONG, lease_all, message, migrated, open, publish_everything};

async fn with_prefix(url: &str, prefix: &str) -> Postgres {
    let options = Options { prefix: TablePrefix::new(prefix).unwrap(), ..Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

#[tokio::test]
async fn tables_can_live_in_a_schema_beside_others() {
    let Some(url) = fresh_postgres_database().await else { return };
    let (plain, billing, same_schema) =
        (open(&url).await, with_prefix(&url, "billing.landfall_").await, with_prefix(&url, "billing.other_").await);
    for database in [&plain, &billing, &same_schema] {
        assert!(database.migrate().await.unwrap());
        assert!(!database.migrate().await.unwrap());
        database.check().await.unwrap();
    }
    let sent = message("a", 1);
    billing.append(std::slice::from_ref(&sent)).await.unwrap();
    sqlx::query("SELECT billing.landfall_publish('orders', 'a', '{}')").execute(billing.pool()).await.unwrap();
    let leases = lease_all(&billing, "one", LONG).await;
    assert_eq!(publish_everything(&billing, &leases).await.len(), 2);
    assert_eq!(billing.stats().await.unwrap().published, 2);
    assert_eq!(plain.stats().await.unwrap().published + same_schema.stats().await.unwrap().published, 0);
}

/// Columns, indexes, constraints and functions of every schema but PostgreSQL's own.
async fn shape(database: &Postgres) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT format('column %s.%s.%s %s %s %s', table_schema, table_name, column_name, data_type, is_nullable,
                       coalesce(column_default, generation_expression))
           FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema')
         UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
         UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
           WHERE connamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')
         UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc
           WHERE pronamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')
         UNION ALL SELECT format('reloptions %s %s', oid::regclass, reloptions) FROM pg_class
           WHERE relkind = 'r' AND relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')
         ORDER BY 1",
    )
    .fetch_all(database.pool())
    .await
    .unwrap()
}

#[tokio::test]
async fn the_printed_statements_make_the_same_tables_as_migrating() {
    for prefix in ["landfall_", "billing.lf_"] {
        let Some(migrated_url) = fresh_postgres_database().await else { return };
        let Some(printed_url) = fresh_postgres_database().await else { return };
        let migrated = with_prefix(&migrated_url, prefix).await;
        migrated.migrate().await.unwrap();
        let printed = with_prefix(&printed_url, prefix).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(printed.ddl())).execute(printed.pool()).await.unwrap();

        assert_eq!(shape(&printed).await, shape(&migrated).await);
        printed.check().await.unwrap();
        assert!(!printed.migrate().await.unwrap(), "there is nothing left to do");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let Some(database) = migrated().await else { return };
    sqlx::query("INSERT INTO landfall_schema (version) VALUES (1000)").execute(database.pool()).await.unwrap();
    for error in [database.migrate().await.unwrap_err(), database.check().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.to_string().contains("version 1000"), "{error}");
    }
    assert_eq!(database.state().await.unwrap().found, 1000);
}

#[tokio::test]
async fn without_tables_every_call_says_that_they_are_missing() {
    let Some(url) = fresh_postgres_database().await else { return };
    let database = open(&url).await;
    let message = Message::new(TopicName::new("orders").unwrap(), "");
    let error = database.append(&[message]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert_eq!(database.stats().await.unwrap_err().kind(), ErrorKind::Schema);
}
