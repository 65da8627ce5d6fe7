//! What a person sees of the outbox and does to it, one message in every state.

use std::time::Duration;

use landfall::adapter::{Decision, Lease, Settlement, Shard};
use landfall::{ErrorCode, Holder, Key, Message, TopicName};
use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Outbox, PATIENCE, Place, on_each};

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

/// Does what a relay would do with the message of that key that is due.
async fn settle(outbox: &Outbox, key: &str, decision: Decision) {
    let leases = leases(outbox).await;
    let due = outbox.queue.next(&leases, 100).await.unwrap();
    let is_of_key = |message: &Message| message.key.as_ref().is_some_and(|found| found.as_str() == key);
    let entry = due.iter().find(|entry| entry.message.as_ref().is_ok_and(is_of_key)).unwrap();
    let settlement = Settlement { row: entry.row, shard: entry.shard, decision };
    assert_eq!(outbox.queue.settle(&leases, &[settlement]).await.unwrap().len(), 1);
    outbox.leases.release(&leases).await.unwrap();
}

/// Keys named for the state of their first message; behind the retrying and the parked one stands another.
pub(crate) async fn one_of_each(place: &Place) -> Outbox {
    assert_eq!(place.run(&["migrate"]).await.code, 0);
    let outbox = place.outbox().await;
    let messages = ["sent", "retrying", "parked", "pending"].map(|key| message(key, 1));
    outbox.queue.append(&messages).await.unwrap();
    outbox.queue.append(&[message("retrying", 2), message("parked", 2)]).await.unwrap();
    settle(&outbox, "sent", Decision::Published).await;
    settle(&outbox, "retrying", Decision::Retry { after: HOUR, error: "BUSY: the broker is full".into() }).await;
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    settle(&outbox, "parked", park).await;
    outbox
}

async fn list(place: &Place, arguments: &[&str]) -> Vec<Value> {
    place.run(&[&["outbox", "list", "--json"], arguments].concat()).await.objects()
}

fn keys(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["key"].as_str().unwrap()).collect()
}

async fn row_of(place: &Place, state: &str) -> String {
    list(place, &["--state", state]).await[0]["row"].to_string()
}

on_each! {
    async fn every_state_is_counted_and_listed(place: &Place) {
        one_of_each(place).await;
        let stats = place.run(&["outbox", "stats", "--json"]).await.objects();
        let stats = stats[0].as_object().unwrap();
        assert_eq!(stats.keys().collect::<Vec<_>>(), ["oldest_seconds", "parked", "pending", "published", "retrying"]);
        let count = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!((count("pending"), count("retrying"), count("parked"), count("published")), (3, 1, 1, 1));

        assert_eq!(keys(&list(place, &[]).await), ["retrying", "pending", "retrying", "parked"]);
        for (state, expected) in [
            ("pending", &["pending"][..]),
            ("waiting", &["retrying", "parked"]),
            ("retrying", &["retrying"]),
            ("parked", &["parked"]),
            ("sent", &["sent"]),
        ] {
            let rows = list(place, &["--state", state]).await;
            assert_eq!(keys(&rows), expected, "{state}");
            assert!(rows.iter().all(|row| row["state"] == state), "{rows:?}");
        }
        let retrying = &list(place, &["--state", "retrying"]).await[0];
        assert_eq!((&retrying["attempts"], &retrying["last_error"]), (&json!(1), &json!("BUSY: the broker is full")));
        assert!(retrying["next_attempt"].is_string() && retrying["sent_at"].is_null(), "{retrying}");
        assert!(list(place, &["--state", "sent"]).await[0]["sent_at"].is_string());

        assert_eq!(keys(&list(place, &["--key", "parked"]).await), ["parked"]);
        assert_eq!(list(place, &["--topic", "payments"]).await.len(), 0);
        assert_eq!(keys(&list(place, &["--id", retrying["message_id"].as_str().unwrap()]).await), ["retrying"]);
        let after = list(place, &["--after", &retrying["row"].to_string(), "--limit", "2"]).await;
        assert_eq!(keys(&after), ["pending", "retrying"]);
        let table = place.run(&["outbox", "list", "--state", "retrying"]).await.stdout;
        assert!(table.starts_with("ROW") && table.contains("NEXT ATTEMPT") && table.contains("BUSY"), "{table}");
        let wrong = place.run(&["outbox", "list", "--state", "lost"]).await;
        assert!(wrong.code == 2 && wrong.stderr.contains("pending, waiting, retrying, parked, sent"), "{wrong:?}");
    }

    async fn a_message_is_shown_with_its_payload_and_its_history(place: &Place) {
        one_of_each(place).await;
        for state in ["pending", "retrying", "parked", "sent"] {
            let row = row_of(place, state).await;
            let by_row = place.run(&["outbox", "show", &row, "--json"]).await.objects();
            assert_eq!(by_row.len(), 1);
            let shown = &by_row[0];
            assert_eq!((&shown["state"], &shown["payload"]), (&json!(state), &json!({"n": 1})));
            assert_eq!((&shown["kind"], &shown["sequence"], &shown["headers"]), (&json!("message"), &json!(1), &json!({})));
            let id = shown["message_id"].as_str().unwrap();
            assert_eq!(place.run(&["outbox", "show", id, "--json"]).await.objects(), by_row);
            let letters = shown["dead_letters"].as_array().unwrap();
            assert_eq!(letters.len(), usize::from(state == "parked"), "{shown}");
        }
        let parked = place.run(&["outbox", "show", &row_of(place, "parked").await, "--json"]).await.objects();
        let letter = &parked[0]["dead_letters"][0];
        assert_eq!((&letter["error_code"], &letter["status"]), (&json!("TOO_LARGE"), &json!("parked")));

        let text = place.run(&["outbox", "show", &row_of(place, "parked").await]).await.stdout;
        assert!(text.contains("TOO_LARGE: too large") && text.contains("{\"n\": 1}"), "{text}");
        assert!(place.run(&["outbox", "show", "999"]).await.sentence(1).contains("no row 999"));
        let unknown = "0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10";
        assert!(place.run(&["outbox", "show", unknown]).await.sentence(1).contains(unknown));
        assert_eq!(place.run(&["outbox", "show", "seventeen"]).await.code, 2);
    }

    async fn what_waits_is_tried_at_once_when_somebody_says_so(place: &Place) {
        one_of_each(place).await;
        let (pending, retrying) = (row_of(place, "pending").await, row_of(place, "retrying").await);
        let done = place.run(&["outbox", "retry", &retrying, &pending, "--actor", "maria", "--json"]).await.objects();
        let number = |row: &str| row.parse::<i64>().unwrap();
        assert_eq!(done, [json!({"retried": [number(&retrying)], "skipped": [number(&pending)]})]);
        let audit = "SELECT count(*) FROM landfall_audit WHERE actor = 'maria' AND action = 'retry'";
        assert_eq!(place.count(audit).await, 1);

        let again = place.run(&["outbox", "retry", &retrying]).await;
        assert_eq!((again.code, again.stdout.trim()), (1, "0 due now; 1 did not wait for an attempt"), "{again:?}");
        assert!(again.stderr.contains("none of these rows waits"), "{again:?}");
        let all = place.run(&["outbox", "retry", "--all-retrying"]).await;
        assert_eq!((all.code, all.stdout.trim()), (0, "0 due now"), "nothing is left to hurry: {all:?}");
        assert_eq!(place.run(&["outbox", "retry"]).await.code, 2);
        assert_eq!(place.run(&["outbox", "retry", "1", "--all-retrying"]).await.code, 2);
    }

    async fn all_that_wait_are_tried_at_once(place: &Place) {
        let outbox = one_of_each(place).await;
        settle(&outbox, "pending", Decision::Retry { after: HOUR, error: "BUSY: the broker is full".into() }).await;
        let done = place.run(&["outbox", "retry", "--all-retrying", "--json"]).await.objects();
        assert_eq!(done[0]["retried"].as_array().unwrap().len(), 2);

        let daemon = place.serve().await;
        let published = async || place.run(&["outbox", "stats", "--json"]).await.objects()[0]["published"].as_u64();
        eventually(PATIENCE, "what was held up is published", async || {
            // The parked message and its successor stay.
            published().await == Some(4)
        })
        .await;
        drop(daemon);
    }

    async fn what_has_failed_can_be_given_up_by_hand(place: &Place) {
        one_of_each(place).await;
        let (pending, retrying) = (row_of(place, "pending").await, row_of(place, "retrying").await);
        let refused = place.run(&["outbox", "park", &pending, "--reason", "no"]).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("failed at least once"), "{refused:?}");
        assert!(place.run(&["outbox", "park", &retrying, "--reason", " "]).await.sentence(2).contains("say why"));
        assert_eq!(place.run(&["outbox", "park", &retrying]).await.code, 2, "without a reason");

        let arguments = ["outbox", "park", &retrying, &pending, "--reason", "ticket 4711", "--actor", "maria", "--json"];
        let done = place.run(&arguments).await.objects();
        assert_eq!(done[0]["parked"].to_string(), format!("[{retrying}]"));
        assert_eq!(done[0]["skipped"].to_string(), format!("[{pending}]"));
        let letters = place.run(&["dlq", "list", "--code", "PARKED_BY_HAND", "--json"]).await.objects();
        assert_eq!((letters.len(), &letters[0]["error"]), (1, &json!("ticket 4711")));
        assert_eq!(place.count("SELECT count(*) FROM landfall_audit WHERE actor = 'maria' AND action = 'park'").await, 1);
        assert_eq!(list(place, &["--state", "waiting"]).await.len(), 2, "its key still waits");
    }

    async fn sent_messages_are_archived_before_they_are_purged(place: &Place) {
        one_of_each(place).await;
        let sent = list(place, &["--state", "sent"]).await;
        let purge = ["outbox", "purge", "--sent-before", "0", "--json", "--archive"];
        let nowhere = place.run(&[&purge[..], &["no/such/folder/sent.jsonl"]].concat()).await;
        assert_eq!(nowhere.code, 1);
        assert!(nowhere.stderr.contains("nothing more is removed"), "{}", nowhere.stderr);
        assert_eq!(list(place, &["--state", "sent"]).await.len(), 1, "what is not archived stays");

        // As a crash leaves it.
        let file = place.path().join("sent.jsonl");
        std::fs::write(&file, "{\"row\":").unwrap();
        let archive = [&purge[..], &[file.to_str().unwrap()]].concat();
        assert_eq!(place.run(&archive).await.objects(), [json!({"removed": 1, "archived": 1})]);
        assert_eq!(place.run(&archive).await.objects(), [json!({"removed": 0, "archived": 0})]);
        assert!(list(place, &["--state", "sent"]).await.is_empty());
        assert_eq!(list(place, &[]).await.len(), 4, "nothing else is touched");
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "{\"row\":"));
        let archived: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(archived["message_id"], sent[0]["message_id"]);
        assert_eq!(archived["state"], "sent");
        assert!(archived.get("payload").is_some_and(|payload| !payload.is_null()), "{archived}");
    }

    async fn sent_messages_are_purged_by_their_age(place: &Place) {
        one_of_each(place).await;
        assert_eq!(place.run(&["outbox", "purge", "--sent-before", "7d"]).await.stdout, "0 removed\n");
        assert_eq!(list(place, &["--state", "sent"]).await.len(), 1);
        let done = place.run(&["outbox", "purge", "--sent-before", "0", "--json"]).await.objects();
        assert_eq!(done, [json!({"removed": 1})]);
        assert!(list(place, &["--state", "sent"]).await.is_empty());
        assert_eq!(list(place, &[]).await.len(), 4, "nothing else is touched");
        for wrong in [&["outbox", "purge"][..], &["outbox", "purge", "--sent-before", "soon"]] {
            assert_eq!(place.run(wrong).await.code, 2);
        }
    }
}
