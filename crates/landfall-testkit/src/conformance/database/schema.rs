//! Schema: concurrent and repeated migrations, and the check for missing tables.

use landfall_core::{ErrorKind, Schema};

use super::{DatabaseFixture, Harness};

/// Creates another database without tables: the harness has migrated its own.
async fn unmigrated<F: DatabaseFixture>() -> Option<F> {
    F::create().await
}

pub async fn schema_check_without_tables_names_the_migration<F: DatabaseFixture>(_stage: Harness<F>) {
    let Some(fixture) = unmigrated::<F>().await else { return };
    let database = fixture.open().await;
    let error = database.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("landfall migrate"), "{error}");
    assert_eq!(database.state().await.unwrap().found, 0);
    assert!(!database.ddl().is_empty());
}

pub async fn migrate_is_idempotent<F: DatabaseFixture>(_stage: Harness<F>) {
    let Some(fixture) = unmigrated::<F>().await else { return };
    let database = fixture.open().await;
    assert!(database.migrate().await.unwrap(), "the first migration changed nothing");
    assert!(!database.migrate().await.unwrap(), "the second migration changed something");
    assert!(!fixture.open().await.migrate().await.unwrap());
    database.check().await.unwrap();
    let state = database.state().await.unwrap();
    assert!(state.found == state.expected && state.found > 0, "{state:?}");
}

pub async fn concurrent_migrations_are_safe<F: DatabaseFixture>(_stage: Harness<F>) {
    let Some(fixture) = unmigrated::<F>().await else { return };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let database = fixture.open().await;
        tasks.spawn(async move { database.migrate().await.unwrap() });
    }
    let changed = tasks.join_all().await;
    assert_eq!(changed.iter().filter(|changed| **changed).count(), 1, "not exactly one migration created the tables");
    fixture.open().await.check().await.unwrap();
}
