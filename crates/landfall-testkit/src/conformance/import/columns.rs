//! What the columns become.

use landfall_core::{ColumnName, HeaderColumn, Imported, Mapping, TableName, Taken, TopicTemplate};

use super::stage::{debezium, id, insert};
use super::{ImportFixture, Stage};

pub async fn debeziums_columns_need_no_word<F: ImportFixture>(stage: Stage<F>) {
    stage.define(F::DIALECT.debezium).await;
    stage.commit(&[&insert(1, "42", r#"{"total": 250}"#), &insert(2, "43", r#"{"total": 990}"#)]).await;
    assert_eq!(stage.move_all(&debezium()).await, Imported { moved: 2, refused: 0 });

    let mut messages = stage.messages().await;
    messages.sort_by_key(|message| message.key.clone());
    assert_eq!(messages.len(), 2);
    let first = &messages[0];
    assert_eq!(first.id.to_string(), id(1));
    assert_eq!(first.topic.as_str(), "outbox.event.Order");
    assert_eq!(first.key.as_ref().unwrap().as_str(), "42");
    assert_eq!(first.kind.as_str(), "OrderPlaced");
    let payload: serde_json::Value = serde_json::from_slice(&first.payload).unwrap();
    assert_eq!(payload, serde_json::json!({ "total": 250 }));
    assert_eq!(stage.count("SELECT count(*) FROM outbox").await, 0, "what was moved is gone");
}

pub async fn every_type_of_payload_arrives_as_its_bytes<F: ImportFixture>(stage: Stage<F>) {
    let uuid = F::DIALECT.uuid;
    for (number, (kind, literal, bytes)) in (1..).zip(F::DIALECT.payloads) {
        let (table, id) = (format!("payload_{number}"), id(number));
        stage.define(&format!("CREATE TABLE {table} (id {uuid} PRIMARY KEY, payload {kind})")).await;
        stage.commit(&[&format!("INSERT INTO {table} VALUES ('{id}', {literal})")]).await;
        let mapping = bare(&table);
        assert_eq!(stage.move_all(&mapping).await, Imported { moved: 1, refused: 0 }, "{kind}");
        let messages = stage.messages().await;
        let message = messages.iter().find(|message| message.id.to_string() == id).expect("the row was moved");
        assert_eq!(&message.payload[..], *bytes, "{kind}");
        assert_eq!((message.topic.as_str(), &message.key), ("fixed", &None));
    }
}

pub async fn every_type_of_id_becomes_a_stable_one<F: ImportFixture>(stage: Stage<F>) {
    for (number, (kind, literal, uuid)) in (1..).zip(F::DIALECT.ids) {
        let table = format!("id_{number}");
        stage.define(&format!("CREATE TABLE {table} (id {kind} NOT NULL UNIQUE, payload {})", F::DIALECT.text)).await;
        let row = format!("INSERT INTO {table} VALUES ({literal}, '{number}')");
        let mut ids = Vec::new();
        // The same row twice, as when somebody restores a backup: it is the same message.
        for _ in 0..2 {
            stage.commit(&[&row]).await;
            assert_eq!(stage.move_all(&bare(&table)).await.moved, 1, "{kind}");
        }
        for message in stage.messages().await {
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

pub async fn other_columns_and_templates_are_a_matter_of_the_mapping<F: ImportFixture>(stage: Stage<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    stage
        .define(&format!(
            "CREATE TABLE events (event_id {uuid} PRIMARY KEY, stream {text}, version {text}, customer integer,
             body {text}, tenant {text}, trace_id {text})"
        ))
        .await;
    let row = |number, tenant| {
        format!("INSERT INTO events VALUES ('{}', 'orders', 'v2', 7, 'hello', {tenant}, '00-abc')", id(number))
    };
    stage.commit(&[&row(1, "'eu'"), &row(2, "NULL")]).await;
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
    assert_eq!(stage.move_all(&mapping).await, Imported { moved: 2, refused: 0 });

    let messages = stage.messages().await;
    for message in &messages {
        assert_eq!((message.topic.as_str(), message.kind.as_str()), ("orders-v2", "message"));
        assert_eq!(message.key.as_ref().unwrap().as_str(), "7");
        assert_eq!(message.headers.get("traceparent"), Some("00-abc"));
        let tenant = (message.id.to_string() == id(1)).then_some("eu");
        assert_eq!(message.headers.get("tenant"), tenant);
    }
}

pub async fn rows_that_must_stay_are_marked<F: ImportFixture>(stage: Stage<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    for (number, kind) in (1..).zip(F::DIALECT.marks) {
        let table = format!("marked_{number}");
        stage.define(&format!("CREATE TABLE {table} (id {uuid} PRIMARY KEY, payload {text}, done {kind})")).await;
        let row = |id: &str| format!("INSERT INTO {table} (id, payload) VALUES ('{id}', '{number}')");
        stage.commit(&[&row(&id(1)), &row(&id(2))]).await;
        let mapping = Mapping { taken: Taken::Mark(ColumnName::new("done").unwrap()), ..bare(&table) };
        assert_eq!(stage.move_all(&mapping).await.moved, 2, "{kind}");
        assert_eq!(stage.move_all(&mapping).await.moved, 0, "{kind}: what is marked is not moved again");
        stage.commit(&[&row(&id(3))]).await;
        assert_eq!(stage.move_all(&mapping).await.moved, 1, "{kind}");
        assert_eq!(stage.count(&format!("SELECT count(*) FROM {table}")).await, 3, "{kind}: every row stays");
        assert_eq!(stage.count(&format!("SELECT count(*) FROM {table} WHERE done IS NULL")).await, 0, "{kind}");
    }
    assert_eq!(stage.messages().await.len(), 3 * F::DIALECT.marks.len());
}

pub async fn rows_that_cannot_be_messages_are_there_to_be_parked<F: ImportFixture>(stage: Stage<F>) {
    let (uuid, text) = (F::DIALECT.uuid, F::DIALECT.text);
    stage
        .define(&format!(
            "CREATE TABLE outbox (id {uuid} PRIMARY KEY, aggregatetype {text}, aggregateid {text}, type {text},
             payload {text})"
        ))
        .await;
    let row = |number, kind: &str, key: &str| {
        format!("INSERT INTO outbox VALUES ('{}', {kind}, {key}, 'OrderPlaced', 'p{number}')", id(number))
    };
    stage
        .commit(&[
            &row(1, "NULL", "'42'"),
            &row(2, "'no spaces please'", "'42'"),
            &row(3, "'Order'", "'a\nb'"),
            &row(4, "'Order'", "'42'"),
        ])
        .await;
    assert_eq!(stage.move_all(&debezium()).await, Imported { moved: 4, refused: 3 });
    assert_eq!(stage.count("SELECT count(*) FROM outbox").await, 0, "none of them blocks the table");

    for entry in stage.publish().await {
        let known = entry.message_id.to_string();
        match entry.message {
            Ok(message) => assert_eq!((known, &message.payload[..]), (id(4), &b"p4"[..])),
            Err(error) => {
                let reasons = [(1, "column aggregatetype is null"), (2, "no spaces please"), (3, r#""a\nb""#)];
                let (_, reason) = reasons.into_iter().find(|(number, _)| id(*number) == known).expect("a bad row");
                assert!(error.to_string().contains(reason), "{error}");
            }
        }
    }
}

/// Only an id and a payload; everything else is fixed or absent.
fn bare(table: &str) -> Mapping {
    Mapping {
        table: TableName::new(table).unwrap(),
        topic: TopicTemplate::new("fixed").unwrap(),
        key: None,
        kind: None,
        ..debezium()
    }
}
