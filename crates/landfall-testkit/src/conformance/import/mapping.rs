//! A mapping that does not match the table is refused at the start, with a clear error.

use landfall_core::{ColumnName, Error, ErrorKind, ImportSource, Mapping, TableName};

use super::harness::debezium;
use super::{Harness, ImportFixture};

async fn refusal<F: ImportFixture>(harness: &Harness<F>, mapping: Mapping) -> Error {
    match harness.database.prepare_import(mapping).await {
        Ok(_) => panic!("the mapping was accepted"),
        Err(error) => error,
    }
}

pub async fn missing_table_is_named_in_the_error<F: ImportFixture>(harness: Harness<F>) {
    let error = refusal(&harness, debezium()).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("the table outbox to import does not exist"), "{error}");
}

pub async fn missing_column_error_lists_existing_columns<F: ImportFixture>(harness: Harness<F>) {
    harness.define(F::DIALECT.debezium).await;
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
        let error = refusal(&harness, mapping).await;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let expected = "the table outbox has no column event_id; it has id, aggregatetype, aggregateid, type, payload";
        assert!(error.to_string().contains(expected), "{error}");
    }
}

pub async fn unsupported_column_type_is_refused<F: ImportFixture>(harness: Harness<F>) {
    let Some(kind) = F::DIALECT.no_payload else { return };
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    harness
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} PRIMARY KEY, aggregatetype {text}, aggregateid {text}, type {text},
             payload {kind})"
        ))
        .await;
    let error = refusal(&harness, debezium()).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("the column payload of outbox is"), "{error}");
}

pub async fn view_is_refused<F: ImportFixture>(harness: Harness<F>) {
    harness.define(F::DIALECT.debezium).await;
    harness.define("CREATE VIEW seen AS SELECT * FROM outbox").await;
    let error = refusal(&harness, Mapping { table: TableName::new("seen").unwrap(), ..debezium() }).await;
    assert!(error.to_string().contains("its rows cannot be taken"), "{error}");
}
