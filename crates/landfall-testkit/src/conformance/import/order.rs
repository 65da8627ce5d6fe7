//! The order in which rows are imported.

use landfall_core::adapter::{Import, Lease};
use landfall_core::{ColumnName, Database, ImportOrder, Mapping};

use super::harness::{debezium, id, insert};
use super::{Harness, ImportFixture};

const WRITERS: u32 = 6;
const ROWS: u32 = 40;

/// Creates a table with Debezium's columns and one more.
async fn table_with<F: ImportFixture>(harness: &Harness<F>, column: &str) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    harness
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} NOT NULL UNIQUE, aggregatetype {text}, aggregateid {text}, type {text},
             payload {text}, {column})"
        ))
        .await;
}

pub async fn rows_are_imported_in_order_of_the_column<F: ImportFixture>(harness: Harness<F>) {
    table_with(&harness, "place integer").await;
    for place in [30, 10, 20, 40, 5] {
        let row = insert(place, "k", &place.to_string()).replace("payload)", "payload, place)");
        harness.commit(&[&row.replace("')", &format!("', {place})"))]).await;
    }
    let mapping = Mapping { order_by: vec![ColumnName::new("place").unwrap()], ..debezium() };
    let order = harness.prepare(mapping.clone()).await.order().clone();
    assert_eq!(order, ImportOrder::Known("place".into()));
    harness.move_all(&mapping).await;
    assert_eq!(harness.payloads_of("k").await, ["5", "10", "20", "30", "40"]);
}

pub async fn auto_increment_column_is_detected<F: ImportFixture>(harness: Harness<F>) {
    table_with(&harness, &format!("place {}", F::DIALECT.auto_increment)).await;
    for number in 0..20 {
        harness.commit(&[&insert(number, "k", &number.to_string())]).await;
    }
    assert!(matches!(harness.prepare(debezium()).await.order(), ImportOrder::Known(_)));
    harness.move_all(&debezium()).await;
    assert_eq!(harness.payloads_of("k").await, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}

/// Several rounds, so that the database reuses the space of imported rows.
pub async fn implicit_row_order_is_used_or_reported_as_guessed<F: ImportFixture>(harness: Harness<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    harness
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} PRIMARY KEY, aggregatetype {text}, aggregateid {text}, type {text},
             payload {text})"
        ))
        .await;
    let import = harness.prepare(debezium()).await;
    if let ImportOrder::Guessed(warning) = import.order() {
        assert!(warning.contains("order_by"), "the warning does not name the setting: {warning}");
    }
    if !F::DIALECT.has_implicit_order {
        assert!(matches!(import.order(), ImportOrder::Guessed(_)), "an unknown order was reported as known");
        return;
    }
    let lease = harness.lease(&debezium(), "importer").await;
    for number in 0..120 {
        harness.commit(&[&insert(number, "k", &number.to_string())]).await;
        if number % 30 == 29 {
            import.import(&lease, 20).await.unwrap();
        }
    }
    while import.import(&lease, 20).await.unwrap().moved > 0 {}
    assert_eq!(harness.payloads_of("k").await, (0..120).map(|number| number.to_string()).collect::<Vec<_>>());
}

pub async fn late_commit_is_imported_late<F: ImportFixture>(harness: Harness<F>) {
    table_with(&harness, &format!("place {}", F::DIALECT.auto_increment)).await;
    let import = harness.prepare(debezium()).await;
    let lease = harness.lease(&debezium(), "importer").await;
    let mut late = harness.database.begin().await.unwrap();
    harness.fixture.execute(&mut late, &insert(1, "late", "1")).await;
    harness.commit(&[&insert(2, "k", "2")]).await;
    // The open transaction does not block the importer, and the importer does not skip its row.
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 1);
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 0);
    harness.database.commit(late).await.unwrap();
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 1);
    assert_eq!(harness.payloads_of("late").await, ["1"]);
}

pub async fn key_order_holds_under_concurrent_writers<F: ImportFixture>(harness: Harness<F>) {
    table_with(&harness, &format!("place {}", F::DIALECT.auto_increment)).await;
    let import = harness.prepare(debezium()).await;
    let lease = harness.lease(&debezium(), "importer").await;
    // Each writer has its own key and writes its rows in order, two per transaction.
    let write = async |writer: u32| {
        for pair in 0..ROWS / 2 {
            let row = |number: u32| insert(writer * ROWS + number, &writer.to_string(), &number.to_string());
            harness.commit(&[&row(pair * 2), &row(pair * 2 + 1)]).await;
        }
    };
    let writers = futures_util::future::join_all((0..WRITERS).map(write));
    let moved = async { move_rows(&*import, &lease, (WRITERS * ROWS) as usize).await };
    futures_util::future::join(writers, moved).await;

    let expected: Vec<_> = (0..ROWS).map(|number| number.to_string()).collect();
    for writer in 0..WRITERS {
        assert_eq!(harness.payloads_of(&writer.to_string()).await, expected, "key {writer}");
    }
    let ids: std::collections::HashSet<_> = harness.messages().await.iter().map(|message| message.id).collect();
    assert!((0..WRITERS * ROWS).all(|number| ids.contains(&id(number).parse().unwrap())));
}

/// Imports in small steps until `expected` rows were moved, or until the time limit of the case.
async fn move_rows(import: &dyn Import, lease: &Lease, expected: usize) {
    let mut moved = 0;
    while moved < expected {
        match import.import(lease, 9).await {
            Ok(step) => moved += step.moved,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        tokio::task::yield_now().await;
    }
}
