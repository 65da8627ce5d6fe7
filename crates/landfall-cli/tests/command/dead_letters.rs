//! A message that cannot be published is parked, shown, repaired and redriven.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, Sandbox, TIMEOUT};

async fn list(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(&[&["dlq", "list", "--json"], arguments].concat()).await.objects()
}

/// Starts a daemon and waits until it has parked one message, whose header has a line break.
async fn with_a_parked_message(sandbox: &Sandbox) -> Daemon {
    let daemon = sandbox.serve().await;
    sandbox
        .sql(&format!(
            r#"INSERT INTO landfall_outbox (topic, key, headers, payload)
               VALUES ('orders', 'k', '{{"a":"x\ny"}}', {})"#,
            sandbox.bytes("{\"n\": 1}")
        ))
        .await;
    eventually(TIMEOUT, "the dead letter", async || !list(sandbox, &[]).await.is_empty()).await;
    daemon
}

async fn parked_and_redriven(sandbox: &Sandbox) {
    let daemon = with_a_parked_message(sandbox).await;
    // Its successor waits in the outbox; a message of another key does not.
    daemon.send(r#"{"topic":"orders","key":"k","payload":2}"#).await;
    daemon.send(r#"{"topic":"orders","key":"other","payload":3}"#).await;
    let payloads = async || -> Vec<Value> {
        let tail = sandbox.run(&["topic", "tail", "orders", "--json"]).await;
        if tail.code == 0 { tail.objects().iter().map(|line| line["payload"].clone()).collect() } else { Vec::new() }
    };
    eventually(TIMEOUT, "the other key", async || payloads().await == [json!(3)]).await;
    let rows = sandbox.run(&["outbox", "list", "--json"]).await.objects();
    assert_eq!((rows.len(), &rows[0]["key"], &rows[0]["state"]), (1, &json!("k"), &json!("waiting")));

    let letters = list(sandbox, &["--status", "parked", "--topic", "orders", "--key", "k"]).await;
    let letter = letters[0].as_object().unwrap();
    for field in
        ["id", "message_id", "topic", "key", "error_code", "error", "attempts", "first_seen", "last_attempt", "status"]
    {
        assert!(letter.contains_key(field), "{field} is missing: {letter:?}");
    }
    let id = letter["id"].to_string();
    assert!(list(sandbox, &["--status", "done"]).await.is_empty());

    let shown = sandbox.run(&["dlq", "show", &id, "--json"]).await.objects();
    assert_eq!(shown[0]["payload"], json!({"n": 1}));
    let shown = sandbox.run(&["dlq", "show", letter["message_id"].as_str().unwrap()]).await;
    assert!(shown.stdout.contains("VALIDATION_ERROR") && shown.stdout.contains(r#"{"n": 1}"#), "{shown:?}");

    let preview = sandbox.run(&["dlq", "redrive", "--id", &id, "--dry-run", "--json"]).await.objects();
    assert_eq!(preview[0]["id"].to_string(), id);
    assert_eq!(list(sandbox, &["--status", "parked"]).await.len(), 1);

    sandbox.sql("UPDATE landfall_dead_letter SET headers = '{}'").await;
    let done = sandbox.run(&["dlq", "redrive", "--topic", "orders", "--actor", "maria", "--json"]).await.objects();
    assert_eq!(done, [json!({"redriven": [letter["id"]], "skipped": []})]);
    eventually(TIMEOUT, "the key in its order", async || payloads().await.len() == 3).await;
    let lines = sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects();
    let of_key: Vec<&Value> = lines.iter().filter(|line| line["key"] == "k").map(|line| &line["payload"]).collect();
    assert_eq!(of_key, [&json!({"n": 1}), &json!(2)]);
    assert_eq!(sandbox.count("SELECT count(*) FROM landfall_audit WHERE actor = 'maria'").await, 1);

    let again = sandbox.run(&["dlq", "redrive", "--id", &id]).await;
    assert_eq!((again.code, again.stdout.trim()), (1, "0 redriven; 1 matched but were not parked"), "{again:?}");
}

#[tokio::test]
async fn parked_message_is_redriven_in_order_on_sqlite() {
    parked_and_redriven(&Sandbox::new()).await;
}

#[tokio::test]
async fn parked_message_is_redriven_in_order_on_postgres() {
    if let Some(sandbox) = Sandbox::on_postgres().await {
        parked_and_redriven(&sandbox).await;
    }
}

#[tokio::test]
async fn redrive_needs_a_filter_or_all() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    assert!(sandbox.run(&["dlq", "redrive"]).await.error_line(2).contains("or use --all"));
    assert!(sandbox.run(&["dlq", "redrive", "--all", "--topic", "o"]).await.error_line(2).contains("--all"));
    let nothing = sandbox.run(&["dlq", "redrive", "--all", "--json"]).await;
    assert_eq!(nothing.objects(), [json!({"redriven": [], "skipped": []})]);
    let missing = sandbox.run(&["dlq", "redrive", "--id", "1"]).await;
    assert_eq!((missing.code, missing.stderr.trim()), (1, "landfall: no dead letter matches"));
    assert!(sandbox.run(&["dlq", "show", "1"]).await.error_line(1).contains("no dead letter 1"));
    assert_eq!(sandbox.run(&["dlq", "show", "one"]).await.code, 2);
}

#[tokio::test]
async fn redrive_limit_takes_the_oldest_first() {
    let sandbox = Sandbox::new();
    let daemon = with_a_parked_message(&sandbox).await;
    sandbox
        .sql(r#"INSERT INTO landfall_outbox (topic, headers, payload) VALUES ('orders', '{"a":"x\ny"}', x'31')"#)
        .await;
    eventually(TIMEOUT, "both dead letters", async || list(&sandbox, &[]).await.len() == 2).await;
    let oldest = list(&sandbox, &["--limit", "1"]).await[0]["id"].clone();
    assert_eq!(list(&sandbox, &["--after", &oldest.to_string()]).await.len(), 1);
    drop(daemon);
    let done = sandbox.run(&["dlq", "redrive", "--all", "--limit", "1", "--json"]).await.objects();
    assert_eq!(done[0]["redriven"], json!([oldest]));
    assert_eq!(list(&sandbox, &["--status", "parked"]).await.len(), 1);
}

#[tokio::test]
async fn redrive_says_what_the_guards_skipped_and_why() {
    let sandbox = Sandbox::new();
    drop(with_a_parked_message(&sandbox).await);
    let id = list(&sandbox, &[]).await[0]["id"].clone();
    // As after a redrive that has just failed.
    sandbox.sql("UPDATE landfall_dead_letter SET redrives = 1").await;
    let skipped = sandbox.run(&["dlq", "redrive", "--topic", "orders", "--json"]).await;
    let result: Value = serde_json::from_str(skipped.stdout.trim()).unwrap();
    let expected = json!({"redriven": [], "skipped": [id], "reasons": {"cool-down": [id]}});
    assert_eq!((skipped.code, result), (1, expected), "{skipped:?}");
    let skipped = sandbox.run(&["dlq", "redrive", "--all"]).await;
    assert_eq!((skipped.code, skipped.stdout.trim()), (0, "0 redriven; 1 skipped: cool-down"), "{skipped:?}");
    sandbox.run(&["dlq", "block", "k", "--topic", "orders", "--reason", "see INC-42"]).await;
    sandbox.configure("[redrive]\ncool_down = \"0\"\n");
    let blocked = sandbox.run(&["dlq", "redrive", "--topic", "orders"]).await;
    assert_eq!((blocked.code, blocked.stdout.trim()), (1, "0 redriven; 1 skipped: blocked"), "{blocked:?}");

    let by_id = ["dlq", "redrive", "--id", &id.to_string(), "--reason", "it is repaired", "--actor", "maria", "--json"];
    assert_eq!(sandbox.run(&by_id).await.objects(), [json!({"redriven": [id], "skipped": []})]);
    let audit = sandbox.run(&["dlq", "audit", "--actor", "maria", "--json"]).await.objects();
    assert_eq!((&audit[0]["action"], &audit[0]["detail"]), (&json!("redrive"), &json!("it is repaired")));
}
