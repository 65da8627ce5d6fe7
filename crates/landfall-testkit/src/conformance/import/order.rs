//! In which order rows are moved.

use landfall_core::{ColumnName, Database, Import, ImportOrder, Lease, Mapping};

use super::stage::{debezium, id, insert};
use super::{ImportFixture, Stage};

const WRITERS: u32 = 6;
const ROWS: u32 = 40;

/// A table of Debezium's columns and one more, with a type of its own.
async fn table_with<F: ImportFixture>(stage: &Stage<F>, column: &str) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    stage
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} NOT NULL UNIQUE, aggregatetype {text}, aggregateid {text}, type {text},
             payload {text}, {column})"
        ))
        .await;
}

pub async fn the_column_says_what_came_first<F: ImportFixture>(stage: Stage<F>) {
    table_with(&stage, "place integer").await;
    for place in [30, 10, 20, 40, 5] {
        let row = insert(place, "k", &place.to_string()).replace("payload)", "payload, place)");
        stage.commit(&[&row.replace("')", &format!("', {place})"))]).await;
    }
    let mapping = Mapping { order_by: vec![ColumnName::new("place").unwrap()], ..debezium() };
    let order = stage.prepare(mapping.clone()).await.order().clone();
    assert_eq!(order, ImportOrder::Known("place".into()));
    stage.move_all(&mapping).await;
    assert_eq!(stage.payloads_of("k").await, ["5", "10", "20", "30", "40"]);
}

pub async fn a_column_that_counts_up_is_found<F: ImportFixture>(stage: Stage<F>) {
    table_with(&stage, &format!("place {}", F::DIALECT.counting)).await;
    for number in 0..20 {
        stage.commit(&[&insert(number, "k", &number.to_string())]).await;
    }
    assert!(matches!(stage.prepare(debezium()).await.order(), ImportOrder::Known(_)));
    stage.move_all(&debezium()).await;
    assert_eq!(stage.payloads_of("k").await, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}

/// Several rounds, so that the space of rows that were taken is used again.
pub async fn what_the_database_knows_itself_is_used_or_said_to_be_a_guess<F: ImportFixture>(stage: Stage<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    stage
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} PRIMARY KEY, aggregatetype {text}, aggregateid {text}, type {text},
             payload {text})"
        ))
        .await;
    let import = stage.prepare(debezium()).await;
    if let ImportOrder::Guessed(sentence) = import.order() {
        assert!(sentence.contains("order_by"), "the sentence says what to do: {sentence}");
    }
    if !F::DIALECT.orders_by_itself {
        assert!(matches!(import.order(), ImportOrder::Guessed(_)), "an order that is not known must not be claimed");
        return;
    }
    let lease = stage.lease(&debezium(), "mover").await;
    for number in 0..120 {
        stage.commit(&[&insert(number, "k", &number.to_string())]).await;
        if number % 30 == 29 {
            import.import(&lease, 20).await.unwrap();
        }
    }
    while import.import(&lease, 20).await.unwrap().moved > 0 {}
    assert_eq!(stage.payloads_of("k").await, (0..120).map(|number| number.to_string()).collect::<Vec<_>>());
}

pub async fn a_transaction_that_commits_late_is_moved_late<F: ImportFixture>(stage: Stage<F>) {
    if !F::DIALECT.concurrent_writers {
        return;
    }
    table_with(&stage, &format!("place {}", F::DIALECT.counting)).await;
    let import = stage.prepare(debezium()).await;
    let lease = stage.lease(&debezium(), "mover").await;
    let mut late = stage.database.begin().await.unwrap();
    stage.fixture.execute(&mut late, &insert(1, "late", "1")).await;
    stage.commit(&[&insert(2, "k", "2")]).await;
    // Neither does the open transaction hold the mover up, nor does the mover pass over its row for good.
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 1);
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 0);
    stage.database.commit(late).await.unwrap();
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 1);
    assert_eq!(stage.payloads_of("late").await, ["1"]);
}

pub async fn keys_keep_their_order_under_concurrent_writers<F: ImportFixture>(stage: Stage<F>) {
    table_with(&stage, &format!("place {}", F::DIALECT.counting)).await;
    let import = stage.prepare(debezium()).await;
    let lease = stage.lease(&debezium(), "mover").await;
    // A writer has a key of its own and writes its rows one after the other, two to a transaction.
    let write = async |writer: u32| {
        for pair in 0..ROWS / 2 {
            let row = |number: u32| insert(writer * ROWS + number, &writer.to_string(), &number.to_string());
            stage.commit(&[&row(pair * 2), &row(pair * 2 + 1)]).await;
        }
    };
    let writers = futures_util::future::join_all((0..WRITERS).map(write));
    let moved = async { move_rows(&*import, &lease, (WRITERS * ROWS) as usize).await };
    futures_util::future::join(writers, moved).await;

    let expected: Vec<_> = (0..ROWS).map(|number| number.to_string()).collect();
    for writer in 0..WRITERS {
        assert_eq!(stage.payloads_of(&writer.to_string()).await, expected, "key {writer}");
    }
    let ids: std::collections::HashSet<_> = stage.messages().await.iter().map(|message| message.id).collect();
    assert!((0..WRITERS * ROWS).all(|number| ids.contains(&id(number).parse().unwrap())));
}

/// Moves in small steps until `expected` rows were moved; the case's limit ends it otherwise.
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
