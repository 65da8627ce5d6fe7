//! What does not fit the live table is refused at the start, in a sentence.

use landfall_core::{ColumnName, Error, ErrorKind, ImportSource, Mapping, TableName};

use super::stage::debezium;
use super::{ImportFixture, Stage};

async fn refusal<F: ImportFixture>(stage: &Stage<F>, mapping: Mapping) -> Error {
    match stage.database.prepare_import(mapping).await {
        Ok(_) => panic!("the mapping was accepted"),
        Err(error) => error,
    }
}

pub async fn a_table_that_is_missing_is_named<F: ImportFixture>(stage: Stage<F>) {
    let error = refusal(&stage, debezium()).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("the table outbox to import does not exist"), "{error}");
}

pub async fn a_column_that_is_missing_is_named_with_those_that_exist<F: ImportFixture>(stage: Stage<F>) {
    stage.define(F::DIALECT.debezium).await;
    let column = |name: &str| ColumnName::new(name).unwrap();
    let wrong = [
        Mapping { id: column("event_id"), ..debezium() },
        Mapping { key: Some(column("event_id")), ..debezium() },
        Mapping { payload: column("event_id"), ..debezium() },
        Mapping { topic: "{event_id}".parse().unwrap(), ..debezium() },
        Mapping { headers: vec!["event_id".parse().unwrap()], ..debezium() },
        Mapping { order_by: vec![column("event_id")], ..debezium() },
        Mapping { taken: landfall_core::Taken::Mark(column("event_id")), ..debezium() },
    ];
    for mapping in wrong {
        let error = refusal(&stage, mapping).await;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let sentence = "the table outbox has no column event_id; it has id, aggregatetype, aggregateid, type, payload";
        assert!(error.to_string().contains(sentence), "{error}");
    }
}

pub async fn a_type_that_cannot_be_is_refused<F: ImportFixture>(stage: Stage<F>) {
    let Some(kind) = F::DIALECT.no_payload else { return };
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    stage
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} PRIMARY KEY, aggregatetype {text}, aggregateid {text}, type {text},
             payload {kind})"
        ))
        .await;
    let error = refusal(&stage, debezium()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("the column payload of outbox is"), "{error}");
}

pub async fn a_view_is_refused<F: ImportFixture>(stage: Stage<F>) {
    stage.define(F::DIALECT.debezium).await;
    stage.define("CREATE VIEW seen AS SELECT * FROM outbox").await;
    let error = refusal(&stage, Mapping { table: TableName::new("seen").unwrap(), ..debezium() }).await;
    assert!(error.to_string().contains("its rows cannot be taken"), "{error}");
}
