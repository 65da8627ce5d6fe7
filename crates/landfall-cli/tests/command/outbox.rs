//! `landfall outbox` on an outbox with one message in every state.

use std::time::Duration;

use landfall::adapter::{Decision, Lease, Settlement, Shard};
use landfall::{ErrorCode, Holder, Key, Message, TopicName};
use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Outbox, Sandbox, TIMEOUT, on_each};

const HOUR: Duration = Duration::from_secs(3600);

fn message(key: &str, sequence: i64) -> Message {
    Message::new(TopicName::new("orders").unwrap(), format!("{{\"n\": {sequence}}}"))
        .with_key(Key::new(key).unwrap())
        .with_sequence(sequence)
}

async fn leases(outbox: &Outbox) -> Vec<Lease> {
    let holder = Holder("test".into());
    let mut leases = Vec::new();
    for shard in 0..outbox.queue.shards() {
        leases.push(outbox.leases.acquire(&Shard(shard).lease_name(), &holder, HOUR).await.unwrap().unwrap());
    }
    leases
}

/// Settles the due message of that key as a relay would.
async fn settle(outbox: &Outbox, key: &str, decision: Decision) {
    let leases = leases(outbox).await;
    let due = outbox.queue.next(&leases, 100).await.unwrap();
    let is_of_key = |message: &Message| message.key.as_ref().is_some_and(|found| found.as_str() == key);
    let entry = due.iter().find(|entry| entry.message.as_ref().is_ok_and(is_of_key)).unwrap();
    let settlement = Settlement { row: entry.row, shard: entry.shard, decision };
    assert_eq!(outbox.queue.settle(&leases, &[settlement]).await.unwrap().len(), 1);
    outbox.leases.release(&leases).await.unwrap();
}

/// Creates one message in every state. The key names the state of its first message; the keys `retrying` and `parked`
/// have a second one behind it.
pub(crate) async fn one_of_each(sandbox: &Sandbox) -> Outbox {
    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    let outbox = sandbox.outbox().await;
    let messages = ["sent", "retrying", "parked", "pending"].map(|key| message(key, 1));
    outbox.queue.append(&messages).await.unwrap();
    outbox.queue.append(&[message("retrying", 2), message("parked", 2)]).await.unwrap();
    settle(&outbox, "sent", Decision::Published).await;
    settle(&outbox, "retrying", Decision::Retry { after: HOUR, error: "BUSY: the broker is full".into() }).await;
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    settle(&outbox, "parked", park).await;
    outbox
}

async fn list(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(&[&["outbox", "list", "--json"], arguments].concat()).await.objects()
}

fn keys(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["key"].as_str().unwrap()).collect()
}

async fn row_of(sandbox: &Sandbox, state: &str) -> String {
    list(sandbox, &["--state", state]).await[0]["row"].to_string()
}

on_each! {
    async fn every_state_is_counted_and_listed(sandbox: &Sandbox) {
        one_of_each(sandbox).await;
        let stats = sandbox.run(&["outbox", "stats", "--json"]).await.objects();
        let stats = stats[0].as_object().unwrap();
        assert_eq!(stats.keys().collect::<Vec<_>>(), ["oldest_seconds", "parked", "pending", "published", "retrying"]);
        let count = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!((count("pending"), count("retrying"), count("parked"), count("published")), (3, 1, 1, 1));

        assert_eq!(keys(&list(sandbox, &[]).await), ["retrying", "pending", "retrying", "parked"]);
        for (state, expected) in [
            ("pending", &["pending"][..]),
            ("waiting", &["retrying", "parked"]),
            ("retrying", &["retrying"]),
            ("parked", &["parked"]),
            ("sent", &["sent"]),
        ] {
            let rows = list(sandbox, &["--state", state]).await;
            assert_eq!(keys(&rows), expected, "{state}");
            assert!(rows.iter().all(|row| row["state"] == state), "{rows:?}");
        }
        let retrying = &list(sandbox, &["--state", "retrying"]).await[0];
        assert_eq!((&retrying["attempts"], &retrying["last_error"]), (&json!(1), &json!("BUSY: the broker is full")));
        assert!(retrying["next_attempt"].is_string() && retrying["sent_at"].is_null(), "{retrying}");
        assert!(list(sandbox, &["--state", "sent"]).await[0]["sent_at"].is_string());

        assert_eq!(keys(&list(sandbox, &["--key", "parked"]).await), ["parked"]);
        assert_eq!(list(sandbox, &["--topic", "payments"]).await.len(), 0);
        assert_eq!(keys(&list(sandbox, &["--id", retrying["message_id"].as_str().unwrap()]).await), ["retrying"]);
        let after = list(sandbox, &["--after", &retrying["row"].to_string(), "--limit", "2"]).await;
        assert_eq!(keys(&after), ["pending", "retrying"]);
        let table = sandbox.run(&["outbox", "list", "--state", "retrying"]).await.stdout;
        assert!(table.starts_with("ROW") && table.contains("NEXT ATTEMPT") && table.contains("BUSY"), "{table}");
        let wrong = sandbox.run(&["outbox", "list", "--state", "lost"]).await;
        assert!(wrong.code == 2 && wrong.stderr.contains("pending, waiting, retrying, parked, sent"), "{wrong:?}");
    }

    async fn message_is_shown_with_payload_and_dead_letters(sandbox: &Sandbox) {
        one_of_each(sandbox).await;
        for state in ["pending", "retrying", "parked", "sent"] {
            let row = row_of(sandbox, state).await;
            let by_row = sandbox.run(&["outbox", "show", &row, "--json"]).await.objects();
            assert_eq!(by_row.len(), 1);
            let shown = &by_row[0];
            assert_eq!((&shown["state"], &shown["payload"]), (&json!(state), &json!({"n": 1})));
            assert_eq!((&shown["kind"], &shown["sequence"]), (&json!("message"), &json!(1)));
            assert_eq!(shown["headers"], json!({}));
            let id = shown["message_id"].as_str().unwrap();
            assert_eq!(sandbox.run(&["outbox", "show", id, "--json"]).await.objects(), by_row);
            let letters = shown["dead_letters"].as_array().unwrap();
            assert_eq!(letters.len(), usize::from(state == "parked"), "{shown}");
        }
        let parked = sandbox.run(&["outbox", "show", &row_of(sandbox, "parked").await, "--json"]).await.objects();
        let letter = &parked[0]["dead_letters"][0];
        assert_eq!((&letter["error_code"], &letter["status"]), (&json!("TOO_LARGE"), &json!("parked")));

        let text = sandbox.run(&["outbox", "show", &row_of(sandbox, "parked").await]).await.stdout;
        assert!(text.contains("TOO_LARGE: too large") && text.contains("{\"n\": 1}"), "{text}");
        assert!(sandbox.run(&["outbox", "show", "999"]).await.error_line(1).contains("no row 999"));
        let unknown = "0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10";
        assert!(sandbox.run(&["outbox", "show", unknown]).await.error_line(1).contains(unknown));
        assert_eq!(sandbox.run(&["outbox", "show", "seventeen"]).await.code, 2);
    }

    async fn retry_makes_a_waiting_row_due(sandbox: &Sandbox) {
        one_of_each(sandbox).await;
        let (pending, retrying) = (row_of(sandbox, "pending").await, row_of(sandbox, "retrying").await);
        let done = sandbox.run(&["outbox", "retry", &retrying, &pending, "--actor", "maria", "--json"]).await.objects();
        let number = |row: &str| row.parse::<i64>().unwrap();
        assert_eq!(done, [json!({"retried": [number(&retrying)], "skipped": [number(&pending)]})]);
        let audit = "SELECT count(*) FROM landfall_audit WHERE actor = 'maria' AND action = 'retry'";
        assert_eq!(sandbox.count(audit).await, 1);

        let again = sandbox.run(&["outbox", "retry", &retrying]).await;
        assert_eq!((again.code, again.stdout.trim()), (1, "0 due now; 1 had no attempt scheduled"), "{again:?}");
        assert!(again.stderr.contains("none of these rows waits"), "{again:?}");
        let all = sandbox.run(&["outbox", "retry", "--all-retrying"]).await;
        assert_eq!((all.code, all.stdout.trim()), (0, "0 due now"), "nothing is left to retry: {all:?}");
        assert_eq!(sandbox.run(&["outbox", "retry"]).await.code, 2);
        assert_eq!(sandbox.run(&["outbox", "retry", "1", "--all-retrying"]).await.code, 2);
    }

    async fn retry_all_makes_every_waiting_row_due(sandbox: &Sandbox) {
        let outbox = one_of_each(sandbox).await;
        settle(&outbox, "pending", Decision::Retry { after: HOUR, error: "BUSY: the broker is full".into() }).await;
        let done = sandbox.run(&["outbox", "retry", "--all-retrying", "--json"]).await.objects();
        assert_eq!(done[0]["retried"].as_array().unwrap().len(), 2);

        let daemon = sandbox.serve().await;
        let published = async || sandbox.run(&["outbox", "stats", "--json"]).await.objects()[0]["published"].as_u64();
        eventually(TIMEOUT, "the retried messages are published", async || {
            // The parked message and its successor stay.
            published().await == Some(4)
        })
        .await;
        drop(daemon);
    }

    async fn failed_message_can_be_parked_by_hand(sandbox: &Sandbox) {
        one_of_each(sandbox).await;
        let (pending, retrying) = (row_of(sandbox, "pending").await, row_of(sandbox, "retrying").await);
        let refused = sandbox.run(&["outbox", "park", &pending, "--reason", "no"]).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("failed at least once"), "{refused:?}");
        let blank = sandbox.run(&["outbox", "park", &retrying, "--reason", " "]).await;
        assert!(blank.error_line(2).contains("give a reason"), "{blank:?}");
        assert_eq!(sandbox.run(&["outbox", "park", &retrying]).await.code, 2, "without a reason");

        let rows = ["outbox", "park", &retrying, &pending];
        let flags = ["--reason", "ticket 4711", "--actor", "maria", "--json"];
        let done = sandbox.run(&[&rows[..], &flags].concat()).await.objects();
        assert_eq!(done[0]["parked"].to_string(), format!("[{retrying}]"));
        assert_eq!(done[0]["skipped"].to_string(), format!("[{pending}]"));
        let letters = sandbox.run(&["dlq", "list", "--code", "PARKED_BY_HAND", "--json"]).await.objects();
        assert_eq!((letters.len(), &letters[0]["error"]), (1, &json!("ticket 4711")));
        let audit = "SELECT count(*) FROM landfall_audit WHERE actor = 'maria' AND action = 'park'";
        assert_eq!(sandbox.count(audit).await, 1);
        assert_eq!(list(sandbox, &["--state", "waiting"]).await.len(), 2, "its key still waits");
    }

    async fn purge_archives_before_it_removes(sandbox: &Sandbox) {
        one_of_each(sandbox).await;
        let sent = list(sandbox, &["--state", "sent"]).await;
        let purge = ["outbox", "purge", "--sent-before", "0", "--json", "--archive"];
        let nowhere = sandbox.run(&[&purge[..], &["no/such/folder/sent.jsonl"]].concat()).await;
        assert_eq!(nowhere.code, 1);
        assert!(nowhere.stderr.contains("nothing more is removed"), "{}", nowhere.stderr);
        assert_eq!(list(sandbox, &["--state", "sent"]).await.len(), 1, "a message that is not archived stays");

        // An unfinished line, as a crash leaves it.
        let file = sandbox.path().join("sent.jsonl");
        std::fs::write(&file, "{\"row\":").unwrap();
        let archive = [&purge[..], &[file.to_str().unwrap()]].concat();
        assert_eq!(sandbox.run(&archive).await.objects(), [json!({"removed": 1, "archived": 1})]);
        assert_eq!(sandbox.run(&archive).await.objects(), [json!({"removed": 0, "archived": 0})]);
        assert!(list(sandbox, &["--state", "sent"]).await.is_empty());
        assert_eq!(list(sandbox, &[]).await.len(), 4, "nothing else is touched");
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "{\"row\":"));
        let archived: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(archived["message_id"], sent[0]["message_id"]);
        assert_eq!(archived["state"], "sent");
        assert!(archived.get("payload").is_some_and(|payload| !payload.is_null()), "{archived}");
    }

    async fn purge_removes_sent_messages_by_age(sandbox: &Sandbox) {
        one_of_each(sandbox).await;
        assert_eq!(sandbox.run(&["outbox", "purge", "--sent-before", "7d"]).await.stdout, "0 removed\n");
        assert_eq!(list(sandbox, &["--state", "sent"]).await.len(), 1);
        let purge = ["outbox", "purge", "--sent-before", "0", "--json", "--actor", "alice"];
        assert_eq!(sandbox.run(&purge).await.objects(), [json!({"removed": 1})]);
        let recorded = "SELECT count(*) FROM landfall_audit WHERE actor = 'alice' AND";
        assert_eq!(sandbox.count(&format!("{recorded} action = 'purge'")).await, 1);
        assert_eq!(sandbox.count(&format!("{recorded} action = 'purge-done' AND detail LIKE '%: 1 removed'")).await, 1);
        assert!(list(sandbox, &["--state", "sent"]).await.is_empty());
        assert_eq!(list(sandbox, &[]).await.len(), 4, "nothing else is touched");
        for wrong in [&["outbox", "purge"][..], &["outbox", "purge", "--sent-before", "soon"]] {
            assert_eq!(sandbox.run(wrong).await.code, 2);
        }
    }
}
