//! A message that cannot be published is parked, looked at, repaired and put back.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, PATIENCE, Place};

async fn list(place: &Place, arguments: &[&str]) -> Vec<Value> {
    place.run(&[&["dlq", "list", "--json"], arguments].concat()).await.objects()
}

/// A daemon that has parked one message: a foreign writer stored a header with a line break.
async fn with_a_parked_message(place: &Place) -> Daemon {
    let daemon = place.serve().await;
    place
        .sql(&format!(
            r#"INSERT INTO landfall_outbox (topic, key, headers, payload) VALUES ('orders', 'k', '{{"a":"x\ny"}}', {})"#,
            place.bytes("{\"n\": 1}")
        ))
        .await;
    eventually(PATIENCE, "the dead letter", async || !list(place, &[]).await.is_empty()).await;
    daemon
}

async fn parked_and_put_back(place: &Place) {
    let daemon = with_a_parked_message(place).await;
    // Its successor waits in the outbox; another key does not.
    daemon.send(r#"{"topic":"orders","key":"k","payload":2}"#).await;
    daemon.send(r#"{"topic":"orders","key":"other","payload":3}"#).await;
    let payloads = async || -> Vec<Value> {
        let tail = place.run(&["topic", "tail", "orders", "--json"]).await;
        if tail.code == 0 { tail.objects().iter().map(|line| line["payload"].clone()).collect() } else { Vec::new() }
    };
    eventually(PATIENCE, "the other key", async || payloads().await == [json!(3)]).await;
    let rows = place.run(&["outbox", "list", "--json"]).await.objects();
    assert_eq!((rows.len(), &rows[0]["key"], &rows[0]["state"]), (1, &json!("k"), &json!("waiting")));

    let letters = list(place, &["--status", "parked", "--topic", "orders", "--key", "k"]).await;
    let letter = letters[0].as_object().unwrap();
    for field in
        ["id", "message_id", "topic", "key", "error_code", "error", "attempts", "first_seen", "last_attempt", "status"]
    {
        assert!(letter.contains_key(field), "{field} is missing: {letter:?}");
    }
    let id = letter["id"].to_string();
    assert!(list(place, &["--status", "done"]).await.is_empty());

    let shown = place.run(&["dlq", "show", &id, "--json"]).await.objects();
    assert_eq!(shown[0]["payload"], json!({"n": 1}));
    let shown = place.run(&["dlq", "show", letter["message_id"].as_str().unwrap()]).await;
    assert!(shown.stdout.contains("VALIDATION_ERROR") && shown.stdout.contains(r#"{"n": 1}"#), "{shown:?}");

    let preview = place.run(&["dlq", "redrive", "--id", &id, "--dry-run", "--json"]).await.objects();
    assert_eq!(preview[0]["id"].to_string(), id);
    assert_eq!(list(place, &["--status", "parked"]).await.len(), 1);

    place.sql("UPDATE landfall_dead_letter SET headers = '{}'").await;
    let done = place.run(&["dlq", "redrive", "--topic", "orders", "--actor", "maria", "--json"]).await.objects();
    assert_eq!(done, [json!({"redriven": [letter["id"]], "skipped": []})]);
    eventually(PATIENCE, "the key in its order", async || payloads().await.len() == 3).await;
    let lines = place.run(&["topic", "tail", "orders", "--json"]).await.objects();
    let of_key: Vec<&Value> = lines.iter().filter(|line| line["key"] == "k").map(|line| &line["payload"]).collect();
    assert_eq!(of_key, [&json!({"n": 1}), &json!(2)]);
    assert_eq!(place.count("SELECT count(*) FROM landfall_audit WHERE actor = 'maria'").await, 1);

    let again = place.run(&["dlq", "redrive", "--id", &id]).await;
    assert_eq!((again.code, again.stdout.trim()), (1, "0 redriven; 1 matched and were not parked"), "{again:?}");
}

#[tokio::test]
async fn a_parked_message_is_repaired_and_put_back_on_sqlite() {
    parked_and_put_back(&Place::new()).await;
}

#[tokio::test]
async fn a_parked_message_is_repaired_and_put_back_on_postgres() {
    if let Some(place) = Place::on_postgres().await {
        parked_and_put_back(&place).await;
    }
}

#[tokio::test]
async fn a_redrive_must_say_which() {
    let place = Place::new();
    assert_eq!(place.run(&["migrate"]).await.code, 0);
    assert!(place.run(&["dlq", "redrive"]).await.sentence(2).contains("or use --all"));
    assert!(place.run(&["dlq", "redrive", "--all", "--topic", "o"]).await.sentence(2).contains("--all"));
    let nothing = place.run(&["dlq", "redrive", "--all", "--json"]).await;
    assert_eq!(nothing.objects(), [json!({"redriven": [], "skipped": []})]);
    let missing = place.run(&["dlq", "redrive", "--id", "1"]).await;
    assert_eq!((missing.code, missing.stderr.trim()), (1, "landfall: no dead letter matches"));
    assert!(place.run(&["dlq", "show", "1"]).await.sentence(1).contains("no dead letter 1"));
    assert_eq!(place.run(&["dlq", "show", "one"]).await.code, 2);
}

#[tokio::test]
async fn with_a_limit_the_oldest_go_first() {
    let place = Place::new();
    let daemon = with_a_parked_message(&place).await;
    place
        .sql(r#"INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('orders', '{"a":"x\ny"}', x'31')"#)
        .await;
    eventually(PATIENCE, "both dead letters", async || list(&place, &[]).await.len() == 2).await;
    let oldest = list(&place, &["--limit", "1"]).await[0]["id"].clone();
    assert_eq!(list(&place, &["--after", &oldest.to_string()]).await.len(), 1);
    drop(daemon);
    let done = place.run(&["dlq", "redrive", "--all", "--limit", "1", "--json"]).await.objects();
    assert_eq!(done[0]["redriven"], json!([oldest]));
    assert_eq!(list(&place, &["--status", "parked"]).await.len(), 1);
}
