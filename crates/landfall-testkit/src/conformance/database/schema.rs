//! The tables: made once, by whoever comes first, and never touched by a build that does not know them.

use landfall_core::{ErrorKind, Schema};

use super::{DatabaseFixture, Stage};

/// Another database without tables; the stage's own has been migrated.
async fn bare<F: DatabaseFixture>() -> Option<F> {
    F::create().await
}

pub async fn without_tables_the_check_says_what_to_do<F: DatabaseFixture>(_stage: Stage<F>) {
    let Some(fixture) = bare::<F>().await else { return };
    let database = fixture.open().await;
    let error = database.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("landfall migrate"), "{error}");
    assert_eq!(database.state().await.unwrap().found, 0);
    assert!(!database.ddl().is_empty());
}

pub async fn migrating_twice_changes_nothing<F: DatabaseFixture>(_stage: Stage<F>) {
    let Some(fixture) = bare::<F>().await else { return };
    let database = fixture.open().await;
    assert!(database.migrate().await.unwrap(), "the first one makes the tables");
    assert!(!database.migrate().await.unwrap(), "the second one finds them");
    assert!(!fixture.open().await.migrate().await.unwrap());
    database.check().await.unwrap();
    let state = database.state().await.unwrap();
    assert!(state.found == state.expected && state.found > 0, "{state:?}");
}

pub async fn several_migrations_at_once_are_safe<F: DatabaseFixture>(_stage: Stage<F>) {
    let Some(fixture) = bare::<F>().await else { return };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let database = fixture.open().await;
        tasks.spawn(async move { database.migrate().await.unwrap() });
    }
    let changed = tasks.join_all().await;
    assert_eq!(changed.iter().filter(|changed| **changed).count(), 1, "one of them made the tables");
    fixture.open().await.check().await.unwrap();
}
