//! Manual changes of Landfall's tables.

use landfall_core::adapter::ExpectedTables;
use landfall_core::{Rank, Schema};

use crate::{checks, diagnose, migrated, run};

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_invalid_indexes_are_reported_with_their_consequence() {
    let Some(database) = migrated().await else { return };
    run(
        &database,
        "ALTER TABLE landfall_inbox DROP CONSTRAINT landfall_inbox_pkey;
         DROP INDEX landfall_dead_letter_of_group, landfall_outbox_waiting_key;
         UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'landfall_dead_letter_due'::regclass",
    )
    .await;
    let found = diagnose(&database).await;
    let mut reported: Vec<_> =
        found.iter().map(|finding| (finding.check, finding.rank, finding.about.as_str())).collect();
    reported.sort_unstable();
    assert_eq!(
        reported,
        [
            ("postgres.invalid-index", Rank::Latency, "index landfall_dead_letter_due of landfall_dead_letter"),
            ("postgres.missing-index", Rank::Duplicates, "index landfall_dead_letter_of_group of landfall_dead_letter"),
            ("postgres.missing-index", Rank::Duplicates, "primary key of landfall_inbox"),
            ("postgres.missing-index", Rank::Latency, "index landfall_outbox_waiting_key of landfall_outbox_waiting"),
        ]
    );
    run(&database, "REINDEX INDEX landfall_dead_letter_due").await;
    assert_eq!(diagnose(&database).await.len(), 3, "the suggested fix of an invalid index works");
}

#[tokio::test(flavor = "multi_thread")]
async fn unlogged_table_is_reported_unless_intended() {
    let Some(database) = migrated().await else { return };
    run(&database, "ALTER TABLE landfall_outbox_2 SET UNLOGGED; ALTER TABLE landfall_audit SET UNLOGGED").await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("postgres.unlogged-table", Rank::Loss); 2]);
    for finding in &found {
        run(&database, &finding.mend).await;
    }
    assert_eq!(diagnose(&database).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_table_and_disabled_autovacuum_are_reported() {
    let Some(database) = migrated().await else { return };
    run(&database, "DROP TABLE landfall_sequence; ALTER TABLE landfall_inbox SET (autovacuum_enabled = off)").await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("postgres.schema", Rank::Loss), ("postgres.autovacuum", Rank::Latency)]);
    assert_eq!((found[0].about.as_str(), found[1].about.as_str()), ("landfall_sequence", "landfall_inbox"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_schema_version_is_reported_and_skips_table_checks() {
    let Some(database) = migrated().await else { return };
    run(&database, "INSERT INTO landfall_schema (version) VALUES (1000); DROP TABLE landfall_sequence").await;
    let found = diagnose(&database).await;
    assert_eq!(checks(&found), [("postgres.schema", Rank::Latency)]);
    assert_eq!(found[0].mend, "use a newer landfall");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_migrated_index_is_checked() {
    let Some(database) = migrated().await else { return };
    // Indexes of partitions belong to the index of the partitioned table.
    let made: Vec<(String, Option<String>)> = sqlx::query_as(
        "SELECT indrelid::regclass::text, CASE WHEN indisprimary THEN NULL ELSE indexrelid::regclass::text END
         FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
         WHERE starts_with(relname, 'landfall_') AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid =
             indexrelid)",
    )
    .fetch_all(database.pool())
    .await
    .unwrap();
    let expected = ExpectedTables::from_ddl(&database.ddl());
    let is_expected = |(table, name): &(String, Option<String>)| {
        expected.indexes.iter().any(|index| index.table == *table && index.name == *name)
    };
    assert_eq!(
        made.iter().filter(|index| !is_expected(index)).collect::<Vec<_>>(),
        Vec::<&(String, Option<String>)>::new()
    );
    assert_eq!(made.len(), expected.indexes.len());
}
