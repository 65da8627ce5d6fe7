//! Mapping of columns to message fields.

use landfall_core::adapter::Imported;
use landfall_core::{ColumnName, HeaderColumn, Mapping, TableName, Taken, TopicTemplate};

use super::harness::{debezium, id, insert};
use super::{Harness, ImportFixture};

pub async fn debezium_columns_are_the_default_mapping<F: ImportFixture>(harness: Harness<F>) {
    harness.define(F::DIALECT.debezium).await;
    harness.commit(&[&insert(1, "42", r#"{"total": 250}"#), &insert(2, "43", r#"{"total": 990}"#)]).await;
    assert_eq!(harness.move_all(&debezium()).await, Imported { moved: 2, refused: 0 });

    let mut messages = harness.messages().await;
    messages.sort_by_key(|message| message.key.clone());
    assert_eq!(messages.len(), 2);
    let first = &messages[0];
    assert_eq!(first.id.to_string(), id(1));
    assert_eq!(first.topic.as_str(), "outbox.event.Order");
    assert_eq!(first.key.as_ref().unwrap().as_str(), "42");
    assert_eq!(first.kind.as_str(), "OrderPlaced");
    let payload: serde_json::Value = serde_json::from_slice(&first.payload).unwrap();
    assert_eq!(payload, serde_json::json!({ "total": 250 }));
    assert_eq!(harness.count("SELECT count(*) FROM outbox").await, 0, "imported rows are still in the table");
}

pub async fn each_payload_type_is_imported_as_its_bytes<F: ImportFixture>(harness: Harness<F>) {
    let uuid = F::DIALECT.uuid;
    for (number, (kind, literal, bytes)) in (1..).zip(F::DIALECT.payloads) {
        let (table, id) = (format!("payload_{number}"), id(number));
        harness.define(&format!("CREATE TABLE {table} (id {uuid} PRIMARY KEY, payload {kind})")).await;
        harness.commit(&[&format!("INSERT INTO {table} VALUES ('{id}', {literal})")]).await;
        let mapping = minimal(&table);
        assert_eq!(harness.move_all(&mapping).await, Imported { moved: 1, refused: 0 }, "{kind}");
        let messages = harness.messages().await;
        let message = messages.iter().find(|message| message.id.to_string() == id).expect("the row was not imported");
        assert_eq!(&message.payload[..], *bytes, "{kind}");
        assert_eq!((message.topic.as_str(), &message.key), ("fixed", &None));
    }
}

pub async fn each_id_type_maps_to_a_stable_message_id<F: ImportFixture>(harness: Harness<F>) {
    for (number, (kind, literal, uuid)) in (1..).zip(F::DIALECT.ids) {
        let table = format!("id_{number}");
        harness.define(&format!("CREATE TABLE {table} (id {kind} NOT NULL UNIQUE, payload {})", F::DIALECT.text)).await;
        let row = format!("INSERT INTO {table} VALUES ({literal}, '{number}')");
        let mut ids = Vec::new();
        // The same row twice, as after restoring a backup: it is the same message.
        for _ in 0..2 {
            harness.commit(&[&row]).await;
            assert_eq!(harness.move_all(&minimal(&table)).await.moved, 1, "{kind}");
        }
        for message in harness.messages().await {
            if message.payload == number.to_string() {
                ids.push(message.id.to_string());
            }
        }
        assert_eq!(ids.len(), 2);
        assert_eq!(ids[0], ids[1], "{kind}");
        if let Some(uuid) = uuid {
            assert_eq!(ids[0], *uuid, "{kind}");
        }
    }
}

pub async fn custom_columns_and_topic_templates_are_mapped<F: ImportFixture>(harness: Harness<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    harness
        .define(&format!(
            "CREATE TABLE events (event_id {uuid} PRIMARY KEY, stream {text}, version {text}, customer integer,
             body {text}, tenant {text}, trace_id {text})"
        ))
        .await;
    let row = |number, tenant| {
        format!("INSERT INTO events VALUES ('{}', 'orders', 'v2', 7, 'hello', {tenant}, '00-abc')", id(number))
    };
    harness.commit(&[&row(1, "'eu'"), &row(2, "NULL")]).await;
    let column = |name: &str| ColumnName::new(name).unwrap();
    let mapping = Mapping {
        table: TableName::new("events").unwrap(),
        id: column("event_id"),
        topic: TopicTemplate::new("{stream}-{version}").unwrap(),
        key: Some(column("customer")),
        kind: None,
        payload: column("body"),
        headers: ["tenant", "trace_id:traceparent"].map(|text| text.parse::<HeaderColumn>().unwrap()).to_vec(),
        order_by: vec![column("body")],
        taken: Taken::Delete,
    };
    assert_eq!(harness.move_all(&mapping).await, Imported { moved: 2, refused: 0 });

    let messages = harness.messages().await;
    for message in &messages {
        assert_eq!((message.topic.as_str(), message.kind.as_str()), ("orders-v2", "message"));
        assert_eq!(message.key.as_ref().unwrap().as_str(), "7");
        assert_eq!(message.headers.get("traceparent"), Some("00-abc"));
        let tenant = (message.id.to_string() == id(1)).then_some("eu");
        assert_eq!(message.headers.get("tenant"), tenant);
    }
}

pub async fn kept_rows_are_marked_as_imported<F: ImportFixture>(harness: Harness<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    for (number, kind) in (1..).zip(F::DIALECT.marks) {
        let table = format!("marked_{number}");
        harness.define(&format!("CREATE TABLE {table} (id {uuid} PRIMARY KEY, payload {text}, done {kind})")).await;
        let row = |id: &str| format!("INSERT INTO {table} (id, payload) VALUES ('{id}', '{number}')");
        harness.commit(&[&row(&id(1)), &row(&id(2))]).await;
        let mapping = Mapping { taken: Taken::Mark(ColumnName::new("done").unwrap()), ..minimal(&table) };
        assert_eq!(harness.move_all(&mapping).await.moved, 2, "{kind}");
        assert_eq!(harness.move_all(&mapping).await.moved, 0, "{kind}: a marked row was imported again");
        harness.commit(&[&row(&id(3))]).await;
        assert_eq!(harness.move_all(&mapping).await.moved, 1, "{kind}");
        assert_eq!(harness.count(&format!("SELECT count(*) FROM {table}")).await, 3, "{kind}: a row was removed");
        assert_eq!(harness.count(&format!("SELECT count(*) FROM {table} WHERE done IS NULL")).await, 0, "{kind}");
    }
    assert_eq!(harness.messages().await.len(), 3 * F::DIALECT.marks.len());
}

pub async fn invalid_rows_are_imported_to_be_parked<F: ImportFixture>(harness: Harness<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    harness
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} PRIMARY KEY, aggregatetype {text}, aggregateid {text}, type {text},
             payload {text})"
        ))
        .await;
    let row = |number, kind: &str, key: &str| {
        format!("INSERT INTO outbox VALUES ('{}', {kind}, {key}, 'OrderPlaced', 'p{number}')", id(number))
    };
    harness
        .commit(&[
            &row(1, "NULL", "'42'"),
            &row(2, "'no spaces please'", "'42'"),
            &row(3, "'Order'", "'a\nb'"),
            &row(4, "'Order'", "'42'"),
        ])
        .await;
    assert_eq!(harness.move_all(&debezium()).await, Imported { moved: 4, refused: 3 });
    assert_eq!(harness.count("SELECT count(*) FROM outbox").await, 0, "an invalid row blocks the table");

    for entry in harness.publish().await {
        let message_id = entry.message_id.to_string();
        match entry.message {
            Ok(message) => assert_eq!((message_id, &message.payload[..]), (id(4), &b"p4"[..])),
            Err(error) => {
                let reasons = [(1, "column aggregatetype is null"), (2, "no spaces please"), (3, r#""a\nb""#)];
                let (_, reason) =
                    reasons.into_iter().find(|(number, _)| id(*number) == message_id).expect("a valid row was refused");
                assert!(error.to_string().contains(reason), "{error}");
            }
        }
    }
}

/// A mapping of id and payload only; all other fields are fixed or absent.
fn minimal(table: &str) -> Mapping {
    Mapping {
        table: TableName::new(table).unwrap(),
        topic: TopicTemplate::new("fixed").unwrap(),
        key: None,
        kind: None,
        ..debezium()
    }
}
