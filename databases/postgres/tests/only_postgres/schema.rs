//! The tables in another schema, and created from the printed statements.

use landfall_core::{OutboxQueue, OutboxView, Schema, TablePrefix};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::servers::fresh_postgres_database;

use crate::stage::{LONG, lease_all, message, open, publish_everything};

async fn with_prefix(url: &str, prefix: &str) -> Postgres {
    let options = Options { prefix: TablePrefix::new(prefix).unwrap(), ..Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

#[tokio::test]
async fn tables_can_be_in_another_schema() {
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

/// Lists columns, indexes, constraints and functions of every schema except PostgreSQL's own.
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
async fn printed_statements_create_the_migrated_tables() {
    for prefix in ["landfall_", "billing.lf_"] {
        let Some(migrated_url) = fresh_postgres_database().await else { return };
        let Some(printed_url) = fresh_postgres_database().await else { return };
        let migrated = with_prefix(&migrated_url, prefix).await;
        migrated.migrate().await.unwrap();
        let printed = with_prefix(&printed_url, prefix).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(printed.ddl())).execute(printed.pool()).await.unwrap();

        assert_eq!(shape(&printed).await, shape(&migrated).await);
        printed.check().await.unwrap();
        assert!(!printed.migrate().await.unwrap(), "there is nothing to migrate");
    }
}
