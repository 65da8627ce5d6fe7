//! Expired half messages are written to a folder before they are removed.

use std::fs;
use std::path::Path;

use landfall_testkit::eventually;
use serde_json::{Value, json};

use super::support::{Daemon, Sandbox, TIMEOUT, on_each};

const EARLY: &str = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";

async fn prepare(daemon: &Daemon, payload: Value) -> String {
    let half = json!({
        "topic": "orders", "key": "k", "kind": "Placed", "payload": payload, "business_type": "order",
        "business_id": "7", "check_back": {"http": "http://127.0.0.1:9/"}, "check_after_s": 3600
    });
    let response = daemon.post("/v1/half-messages", half.to_string()).await;
    assert_eq!(response.status, 201, "{response:?}");
    response.json()["id"].as_str().unwrap().to_owned()
}

async fn decide(daemon: &Daemon, id: &str, verb: &str) {
    assert_eq!(daemon.post(&format!("/v1/half-messages/{id}/{verb}"), "").await.status, 200);
}

/// Returns the lines of all files, with those that a crash did not finish as null.
fn archived(folder: &Path) -> Vec<Value> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let mut lines = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("half-messages-20") && name.ends_with(".jsonl"), "{name}");
        let text = fs::read_to_string(&path).unwrap();
        lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap_or_default()));
    }
    lines
}

async fn rows(sandbox: &Sandbox) -> i64 {
    sandbox.count("SELECT count(*) FROM landfall_half_message").await
}

on_each! {
    async fn expired_half_messages_are_archived_before_removal(sandbox: &Sandbox) {
        let daemon = sandbox.serve().await;
        let (kept, open) = (prepare(&daemon, json!({"n": 1.10})).await, prepare(&daemon, json!(2)).await);
        decide(&daemon, &kept, "commit").await;
        decide(&daemon, EARLY, "rollback").await;
        daemon.kill().await;
        let folder = sandbox.path().join("archive/half");
        sandbox.configure(&format!(
            "[retention]\nhalf_messages = \"0\"\nhalf_messages_archive = {:?}\n", folder.display().to_string()
        ));
        // The first round of the housekeeper is at the start.
        let daemon = sandbox.serve().await;
        eventually(TIMEOUT, "the removal", async || rows(sandbox).await == 1).await;
        let lines = archived(&folder);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let line = lines.iter().find(|line| line["id"] == kept.as_str()).unwrap();
        assert_eq!((&line["state"], &line["decided_by"]), (&json!("committed"), &json!("sender")));
        assert_eq!((&line["topic"], &line["key"]), (&json!("orders"), &json!("k")));
        assert_eq!(line["payload"], json!({"n": 1.10}));
        assert!(lines.iter().any(|line| line["id"] == EARLY && line["state"] == "rolled_back"), "{lines:?}");
        assert_eq!(daemon.get(&format!("/v1/half-messages/{open}")).await.json()["state"], "prepared");
    }
}

/// Nothing is removed while the archive cannot be written, and an unfinished line does not swallow the next one.
#[tokio::test]
async fn unwritable_archive_keeps_the_half_messages() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    let id = prepare(&daemon, json!(1)).await;
    decide(&daemon, &id, "rollback").await;
    daemon.kill().await;
    let folder = sandbox.path().join("archive");
    fs::write(&folder, "a file").unwrap();
    let settings = format!("[retention]\nhalf_messages = \"0\"\nhalf_messages_archive = \"{}\"\n", folder.display());
    sandbox.configure(&settings);
    let daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the warning", async || daemon.stderr().contains("cannot write the archive")).await;
    assert_eq!(rows(&sandbox).await, 1);
    daemon.kill().await;

    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    let day = &landfall::Timestamp::now().to_string()[..10];
    fs::write(folder.join(format!("half-messages-{day}.jsonl")), "{\"id\": \"unfin").unwrap();
    let _daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the removal", async || rows(&sandbox).await == 0).await;
    let lines = archived(&folder);
    // At midnight they are in two files.
    assert!(lines.iter().any(|line| line["id"] == id.as_str()) && lines.contains(&Value::Null), "{lines:?}");
}
