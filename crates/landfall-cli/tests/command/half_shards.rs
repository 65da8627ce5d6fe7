//! Half messages of some topics are in databases of their own.

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, Receiver, Sandbox, TIMEOUT, on_each, response};

const EARLY: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";
const QUICK: &str = "[check_back]\ninterval_ms = 20\nimmunity_ms = 0\ntimeout_ms = 500\nbackoff_first_ms = 10\n\
                     backoff_cap_ms = 20\nallow_private_addresses = true\n";

async fn prepare(daemon: &Daemon, topic: &str, more: Value) -> Value {
    let mut half = json!({
        "topic": topic, "payload": topic, "business_type": "order", "business_id": topic,
        "check_back": {"http": "http://127.0.0.1:9/"}, "check_after_s": 3600
    });
    half.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let response = daemon.post("/v1/half-messages", half.to_string()).await;
    assert_eq!(response.status, 201, "{response:?}");
    response.json()
}

async fn decide(daemon: &Daemon, id: &str, verb: &str) -> u16 {
    daemon.post(&format!("/v1/half-messages/{id}/{verb}"), "").await.status
}

async fn published(sandbox: &Sandbox, topic: &str) -> Vec<String> {
    let finished = sandbox.run(&["topic", "tail", topic, "--json"]).await;
    let lines = if finished.code == 1 { Vec::new() } else { finished.objects() };
    lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

on_each! {
    async fn sharded_half_messages_are_decided_listed_and_delivered(sandbox: &Sandbox) {
        let receiver = Receiver::start(|_, _| response(200, "", r#"{"state":"committed"}"#)).await;
        let (pay, shard) = (Sandbox::new(), "[[check_back.shard]]\ntopics = [\"pay.*\"]\ndatabase = ");
        let file = pay.data().join("landfall.db");
        std::fs::create_dir_all(pay.data()).unwrap();
        sandbox.configure(&format!("{QUICK}{shard}\"sqlite:{}\"\n", file.display()));
        let migrated = sandbox.run(&["migrate"]).await;
        assert_eq!((migrated.code, migrated.stdout.lines().count()), (0, 2), "{migrated:?}");
        let daemon = sandbox.serve().await;

        let ids: Vec<String> = [
            prepare(&daemon, "pay.card", json!({})).await,
            prepare(&daemon, "orders", json!({})).await,
        ].iter().map(|reply| reply["id"].as_str().unwrap().to_owned()).collect();
        let rows = async |sandbox: &Sandbox| sandbox.count("SELECT count(*) FROM landfall_half_message").await;
        assert_eq!((rows(&pay).await, rows(sandbox).await), (1, 1));
        for id in &ids {
            assert_eq!(daemon.get(&format!("/v1/half-messages/{id}")).await.json()["state"], "prepared");
        }
        let listed = daemon.get("/v1/half-messages?state=prepared").await.json();
        assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
        eventually(TIMEOUT, "the gauge", async || {
            daemon.get("/metrics").await.body.contains("landfall_half_messages{state=\"prepared\"} 2")
        })
        .await;

        // By a person, and by the sender.
        assert_eq!(sandbox.run(&["half", "commit", &ids[0], "--actor", "ann"]).await.code, 0);
        assert_eq!(decide(&daemon, &ids[1], "commit").await, 200);
        assert_eq!(decide(&daemon, &ids[0], "rollback").await, 409);
        // Before the prepare, whose topic is not known yet.
        assert_eq!(decide(&daemon, EARLY, "rollback").await, 200);
        assert_eq!(prepare(&daemon, "pay.card", json!({"id": EARLY})).await["state"], "rolled_back");
        // A check-back.
        let target = json!({"check_back": {"http": format!("http://{}/", receiver.address)}, "check_after_s": 0});
        let checked = prepare(&daemon, "pay.cash", target).await["id"].as_str().unwrap().to_owned();
        eventually(TIMEOUT, "the messages", async || {
            published(sandbox, "pay.card").await == ids[..1]
                && published(sandbox, "orders").await == ids[1..]
                && published(sandbox, "pay.cash").await == [checked.clone()]
        })
        .await;
        let contradicted = sandbox.run(&["half", "list", "--contradicted", "--json"]).await.objects();
        assert_eq!(contradicted.len(), 1, "{contradicted:?}");
    }
}

/// Commands create no database, and the daemon refuses a URL without an adapter.
#[tokio::test]
async fn shard_without_tables_is_refused_by_commands() {
    let sandbox = Sandbox::new();
    drop(sandbox.serve().await);
    let file = sandbox.path().join("nowhere.db");
    let shard = format!("[[check_back.shard]]\ntopics = [\"pay.*\"]\ndatabase = \"sqlite:{}\"\n", file.display());
    sandbox.configure(&shard);
    let listed = sandbox.run(&["half", "list"]).await;
    assert!(listed.code != 0 && listed.stderr.contains("check_back.shard sqlite:"), "{listed:?}");
    sandbox.configure(&shard.replace("sqlite:", "oracle:"));
    let refused = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refused.error_line(2).contains("check_back.shard[0]"), "{refused:?}");
}
