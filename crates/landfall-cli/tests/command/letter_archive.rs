//! Dead letters are archived to a folder and to S3, and restored. No fault loses one.

use std::fs;
use std::path::Path;

use landfall_testkit::eventually;
use landfall_testkit::servers::{S3Server, StorageFault};
use serde_json::{Value, json};

use super::support::{Finished, Receiver, Sandbox, TIMEOUT, on_each, response};

const LETTERS: usize = 5;

/// Parks and discards some letters, and ends the daemon.
async fn discarded_letters(sandbox: &Sandbox) {
    let receiver = Receiver::start(|_, _| response(422, "", "no")).await;
    sandbox.configure(&receiver.subscription(""));
    let daemon = sandbox.serve().await;
    for key in 0..LETTERS {
        daemon.send(&json!({"topic": "orders", "key": format!("k{key}"), "payload": {"key": key}}).to_string()).await;
    }
    eventually(TIMEOUT, "the dead letters", async || letters(sandbox).await.len() == LETTERS).await;
    let discarded = sandbox.run(&["dlq", "discard", "--topic", "orders", "--reason", "a test", "--json"]).await;
    assert_eq!(discarded.objects()[0]["discarded"].as_array().unwrap().len(), LETTERS, "{discarded:?}");
    daemon.kill().await;
}

async fn letters(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.run(&["dlq", "list", "--status", "all", "--json"]).await.objects()
}

async fn archive(sandbox: &Sandbox, place: &str) -> Finished {
    sandbox.run(&["dlq", "archive", "--older-than", "0", "--archive", place, "--json"]).await
}

async fn objects(sandbox: &Sandbox, place: &str) -> Vec<Value> {
    sandbox.run(&["dlq", "archives", "--archive", place, "--json"]).await.objects()
}

/// Restores every letter of the archive and returns how many were restored and how many were present.
async fn restore_all(sandbox: &Sandbox, place: &str) -> (usize, usize) {
    let from = ["dlq", "restore", "--from", "2026-01-01T00:00:00Z", "--archive", place, "--actor", "maria", "--json"];
    let finished = sandbox.run(&from).await;
    assert_eq!(finished.code, 0, "{finished:?}");
    let done = &finished.objects()[0];
    (done["restored"].as_array().unwrap().len(), done["present"].as_array().unwrap().len())
}

fn damage(path: &Path, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let intact = fs::read(path).unwrap();
    let mut damaged = intact.clone();
    change(&mut damaged);
    fs::write(path, damaged).unwrap();
    intact
}

on_each! {
    async fn letters_are_archived_to_a_folder_and_restored_once(sandbox: &Sandbox) {
        discarded_letters(sandbox).await;
        let folder = sandbox.path().join("archive");
        let place = folder.to_str().unwrap();
        let before = letters(sandbox).await;
        let done = archive(sandbox, place).await;
        let summary = &done.objects()[0];
        assert_eq!((&summary["letters"], &summary["objects"]), (&json!(LETTERS), &json!(1)));
        assert!(letters(sandbox).await.is_empty());
        assert_eq!(archive(sandbox, place).await.objects()[0]["letters"], 0);

        let listed = objects(sandbox, place).await;
        assert_eq!((listed.len(), &listed[0]["letters"]), (1, &json!(LETTERS)));
        let (one, name) = (before[2]["message_id"].as_str().unwrap(), listed[0]["name"].as_str().unwrap());
        let restored = sandbox.run(&["dlq", "restore", "--message-id", one, "--archive", place, "--json"]).await;
        assert_eq!(restored.objects()[0]["restored"], json!([before[2]["id"]]), "{restored:?}");
        assert_eq!(letters(sandbox).await, before[2..3]);
        let id = before[2]["id"].to_string();
        let history = sandbox.run(&["dlq", "history", &id, "--json"]).await.objects();
        let actions: Vec<_> = history.iter().map(|row| row["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["park", "discard", "archive", "restore"]);

        let restored = sandbox.run(&["dlq", "restore", name, "--archive", place, "--json"]).await;
        assert_eq!(restored.objects()[0]["present"], json!([before[2]["id"]]), "{restored:?}");
        assert_eq!(letters(sandbox).await, before);
        assert_eq!(restore_all(sandbox, place).await, (0, LETTERS));
        assert_eq!(letters(sandbox).await, before, "a repeated restore changed something");
    }
}

#[tokio::test]
async fn damaged_object_is_refused_by_name() {
    let sandbox = Sandbox::new();
    discarded_letters(&sandbox).await;
    let folder = sandbox.path().join("archive");
    let place = folder.to_str().unwrap();
    assert_eq!(archive(&sandbox, place).await.code, 0);
    let name = objects(&sandbox, place).await[0]["name"].as_str().unwrap().to_owned();
    let (object, manifest) = (folder.join(&name), folder.join(name.replace(".jsonl.zst", ".manifest.json")));
    let flip: fn(&mut Vec<u8>) = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let cut: fn(&mut Vec<u8>) = |bytes| bytes.truncate(bytes.len() / 2);
    for (path, change) in [(&object, flip), (&object, cut), (&manifest, cut)] {
        let intact = damage(path, change);
        let refused = sandbox.run(&["dlq", "restore", &name, "--archive", place]).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        let file = path.file_name().unwrap().to_str().unwrap();
        assert!(refused.stderr.contains(file), "{file} is not named in {}", refused.stderr);
        assert!(letters(&sandbox).await.is_empty(), "something of a damaged object was restored");
        fs::write(path, intact).unwrap();
    }
    fs::rename(&manifest, folder.join("gone")).unwrap();
    let refused = sandbox.run(&["dlq", "restore", &name, "--archive", place]).await;
    assert!(refused.code == 1 && refused.stderr.contains("without a manifest an object is unfinished"), "{refused:?}");
    fs::rename(folder.join("gone"), &manifest).unwrap();
    assert_eq!(restore_all(&sandbox, place).await, (LETTERS, 0));
}

/// Each fault leaves every letter in the database. Once it ends, the archive is complete.
#[tokio::test]
async fn no_letter_is_removed_before_its_object_is_verified() {
    let Some(server) = S3Server::start("no_letter_is_removed_before_its_object_is_verified").await else { return };
    let sandbox = Sandbox::new();
    discarded_letters(&sandbox).await;
    let before = letters(&sandbox).await;
    for (fault, text) in [
        (StorageFault::Down, "cannot write"),
        (StorageFault::ErrorAfterStoring, "cannot write"),
        (StorageFault::Truncated, "is damaged: it has"),
        (StorageFault::FlippedBit, "is damaged: it has the SHA-256"),
    ] {
        let place = server.url(&format!("{fault:?}"));
        server.inject(Some(fault.clone()));
        let failed = archive(&sandbox, &place).await;
        assert!(failed.code == 1 && failed.stderr.contains(text), "{fault:?}: {failed:?}");
        assert!(!failed.stderr.contains("s3cr3t"), "a secret is shown: {}", failed.stderr);
        assert_eq!(letters(&sandbox).await, before, "{fault:?} lost letters");
        server.inject(None);
        assert_eq!(archive(&sandbox, &place).await.objects()[0]["letters"], LETTERS);
        assert!(letters(&sandbox).await.is_empty());
        let stored = server.objects().await.into_iter().filter(|name| name.starts_with(&format!("{fault:?}/")));
        assert_eq!(stored.count(), 2, "a repetition left an object behind");
        assert_eq!(restore_all(&sandbox, &place).await, (LETTERS, 0));
        assert_eq!(letters(&sandbox).await, before);
    }
}

#[tokio::test]
async fn wrong_credentials_are_named() {
    let Some(server) = S3Server::start("wrong_credentials_are_named").await else { return };
    let sandbox = Sandbox::new();
    discarded_letters(&sandbox).await;
    server.require_credentials().await;
    let refused = archive(&sandbox, &server.url("a")).await;
    assert!(refused.code == 1 && refused.stderr.contains("check the credentials"), "{refused:?}");
    assert!(!refused.stderr.contains("s3cr3t"), "{}", refused.stderr);
    assert_eq!(letters(&sandbox).await.len(), LETTERS);
    let unknown = archive(&sandbox, &format!("{}&colour=red", server.url("a"))).await;
    assert!(unknown.code == 2 && unknown.stderr.contains("unknown parameter \"colour\""), "{unknown:?}");
}

/// The command is killed at every step, and the daemon between the last check and the removal: each letter is in the
/// database or in the archive, and archived once.
#[tokio::test]
async fn killed_daemon_loses_no_letter() {
    let Some(server) = S3Server::start("killed_daemon_loses_no_letter").await else { return };
    let sandbox = Sandbox::new();
    discarded_letters(&sandbox).await;
    let place = server.url("killed");
    sandbox.configure(&format!("[retention]\ndead_letters = \"0\"\ndead_letters_archive = {place:?}\n"));
    for (method, suffix) in
        [("PUT", ".jsonl.zst"), ("GET", ".jsonl.zst"), ("PUT", ".manifest.json"), ("GET", ".manifest.json")]
    {
        server.inject(Some(StorageFault::NoAnswer(method, suffix)));
        let mut child = sandbox.command(&["dlq", "archive"]).spawn().unwrap();
        eventually(TIMEOUT, "the request", async || server.hits() > 0).await;
        child.kill().await.unwrap();
        assert_eq!(letters(&sandbox).await.len(), LETTERS, "removed while {method} {suffix} was not answered");
    }
    let daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the request of the daemon", async || server.hits() > 1).await;
    daemon.kill().await;
    assert_eq!(letters(&sandbox).await.len(), LETTERS);
    assert_eq!(server.objects().await.len(), 2, "the object and its manifest");

    server.inject(None);
    // The killed daemon's leases would expire half a minute later.
    sandbox.sql("UPDATE landfall_lease SET expires_at = 0").await;
    let daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the removal", async || letters(&sandbox).await.is_empty()).await;
    daemon.kill().await;
    assert_eq!(server.objects().await.len(), 2, "each letter is archived once");
    assert_eq!(restore_all(&sandbox, &place).await, (LETTERS, 0));
}

/// The daemon warns and counts while the archive is down, and the letters stay.
#[tokio::test]
async fn archive_that_is_down_keeps_the_letters() {
    let Some(server) = S3Server::start("archive_that_is_down_keeps_the_letters").await else { return };
    let sandbox = Sandbox::new();
    discarded_letters(&sandbox).await;
    let place = server.url("down");
    sandbox.configure(&format!("[retention]\ndead_letters = \"0\"\ndead_letters_archive = {place:?}\n"));
    server.inject(Some(StorageFault::Down));
    sandbox.sql("UPDATE landfall_lease SET expires_at = 0").await;
    let daemon = sandbox.serve().await;
    eventually(TIMEOUT, "the metric", async || {
        daemon.get("/metrics").await.body.contains("landfall_archive_failures_total{what=\"dead_letters\"} 1")
    })
    .await;
    eventually(TIMEOUT, "the warning", async || daemon.stderr().contains("so they stay in the database")).await;
    assert!(!daemon.stderr().contains("s3cr3t"), "{}", daemon.stderr());
    assert_eq!(letters(&sandbox).await.len(), LETTERS);
    server.inject(None);
    eventually(TIMEOUT, "the removal in a later round", async || letters(&sandbox).await.is_empty()).await;
    daemon.kill().await;
}
