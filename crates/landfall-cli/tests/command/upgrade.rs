//! Data that a daemon of the first schema and the first log format left behind is migrated and continued.
//!
//! `fixtures/schema-1` holds it, with messages in every state; its README tells how it was written. It is never written
//! again: if this test fails, the build can no longer take over existing data.

use std::path::PathBuf;
use std::process::Command;

use landfall_testkit::eventually;
use nix::sys::signal::Signal;

use super::support::{Daemon, Receiver, Sandbox, TIMEOUT, on_each};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/command/fixtures/schema-1").join(name)
}

/// Unpacks the data folder, and loads the database if that is a server.
async fn restore(sandbox: &Sandbox) {
    let archive = fixture(&format!("{}.tar.gz", sandbox.database()));
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(sandbox.path()).status().unwrap();
    assert!(unpacked.success());
    if sandbox.database() != "sqlite" {
        sandbox.sql(&std::fs::read_to_string(fixture(&format!("{}.sql", sandbox.database()))).unwrap()).await;
    }
}

async fn stop(daemon: Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.exit_code().await, Some(0));
}

/// The payloads that the receiver got, without their quotes and padding, of keys that begin with one of `keys`.
fn received(receiver: &Receiver, keys: &[char]) -> Vec<String> {
    let bodies = receiver.bodies();
    let words = bodies.iter().map(|body| body.trim_matches('"').split(' ').next().unwrap().to_owned());
    words.filter(|word| word.starts_with(keys)).collect()
}

async fn statuses(sandbox: &Sandbox, key: &str) -> Vec<String> {
    let letters = sandbox.run(&["dlq", "list", "--json", "--key", key]).await.objects();
    letters.iter().map(|letter| letter["status"].as_str().unwrap().to_owned()).collect()
}

async fn published(sandbox: &Sandbox, count: i64) {
    let stats = async || sandbox.run(&["outbox", "stats", "--json"]).await.objects().remove(0);
    eventually(TIMEOUT, "everything is published", async || stats().await["published"] == count).await;
}

on_each! {
    async fn data_of_schema_1_is_migrated_and_continued(sandbox: &Sandbox) {
        restore(sandbox).await;
        assert_eq!(sandbox.count("SELECT max(version) FROM landfall_schema").await, 1);
        let migrate = async || sandbox.run(&["migrate"]).await;
        assert!(migrate().await.stdout.contains("are now at version "));
        assert!(migrate().await.stdout.contains("were already at version "));

        // The fixture is older than any retention.
        let receiver = Receiver::accepting().await;
        let forever = "[retention]\ninbox = \"forever\"\nsent = \"forever\"\ndead_letters = \"forever\"\n";
        sandbox.configure(&format!("{}{forever}", receiver.subscription("")));
        let daemon = sandbox.serve().await;
        continues_with_pending_rows(sandbox, &daemon, &receiver).await;
        keeps_held_keys_and_redrives_them(sandbox, &daemon, &receiver).await;
        remembers_ids(sandbox, &daemon, &receiver).await;
        stop(daemon).await;

        assert_eq!(sandbox.run(&["topic", "verify"]).await.code, 0);
        forgets_nothing_if_replayed(sandbox, &receiver).await;
    }
}

/// What the old daemon had not sent is sent, once and in order. What it had delivered is not delivered again.
async fn continues_with_pending_rows(sandbox: &Sandbox, daemon: &Daemon, receiver: &Receiver) {
    eventually(TIMEOUT, "the pending rows", async || receiver.bodies().len() >= 3).await;
    assert_eq!(received(receiver, &['a']), ["a3"]);
    assert_eq!(received(receiver, &['d']), ["d1", "d2"]);
    daemon.send(r#"{"topic":"unread","key":"u1","payload":"u5"}"#).await;
    published(sandbox, 15).await;
    let tail = sandbox.run(&["topic", "tail", "unread", "--json"]).await.objects();
    let of_key = |key: &str| -> Vec<_> {
        tail.iter().filter(|row| row["key"] == key).map(|row| (row["payload"].as_str(), &row["sequence"])).collect()
    };
    let none = &serde_json::Value::Null;
    assert_eq!(of_key("u1"), [(Some("u1"), &1.into()), (Some("u4"), none), (Some("u5"), none)]);
    assert_eq!(of_key("u2"), [(Some("u2"), &2.into())]);
    assert_eq!(tail.len(), 5);
}

async fn keeps_held_keys_and_redrives_them(sandbox: &Sandbox, daemon: &Daemon, receiver: &Receiver) {
    daemon.send(r#"{"topic":"orders","key":"b","payload":"b4"}"#).await;
    daemon.send(r#"{"topic":"orders","key":"c","payload":"c3"}"#).await;
    eventually(TIMEOUT, "the new message waits", async || statuses(sandbox, "b").await.len() == 3).await;
    assert_eq!(statuses(sandbox, "b").await, ["parked", "waiting", "waiting"]);
    assert_eq!(statuses(sandbox, "c").await, ["parked"]);
    assert_eq!(received(receiver, &['b', 'c', 'e']), [""; 0], "held keys stay held");

    let redriven = sandbox.run(&["dlq", "redrive", "--all", "--json"]).await.objects().remove(0);
    assert_eq!(redriven["redriven"].as_array().map(Vec::len), Some(2), "{redriven}");
    eventually(TIMEOUT, "the held keys", async || received(receiver, &['b', 'c']).len() >= 6).await;
    assert_eq!(received(receiver, &['b']), ["b2", "b3", "b4"]);
    assert_eq!(received(receiver, &['c']), ["c1", "c2", "c3"]);
}

/// An id that the old daemon sent is not sent again.
async fn remembers_ids(sandbox: &Sandbox, daemon: &Daemon, receiver: &Receiver) {
    let known = "SELECT message_id FROM landfall_inbox WHERE consumer_group = 'mailer' ORDER BY message_id LIMIT 1";
    let (key, payload) = (sandbox.key(), sandbox.bytes("\"x again\""));
    let again = format!("INSERT INTO landfall_outbox (message_id, topic, {key}, payload)");
    sandbox.sql(&format!("{again} SELECT message_id, 'orders', 'x', {payload} FROM ({known}) AS known")).await;
    published(sandbox, 20).await;
    daemon.send(r#"{"topic":"orders","key":"x","payload":"x2"}"#).await;
    eventually(TIMEOUT, "the next message of the key", async || !received(receiver, &['x']).is_empty()).await;
    assert_eq!(received(receiver, &['x']), ["x2"]);
    published(sandbox, 21).await;
    let stats = sandbox.run(&["outbox", "stats", "--json"]).await.objects().remove(0);
    assert_eq!((&stats["pending"], &stats["retrying"], &stats["parked"]), (&0.into(), &0.into(), &0.into()));
}

/// The inbox knows every message of the log, those of the old daemon too.
async fn forgets_nothing_if_replayed(sandbox: &Sandbox, receiver: &Receiver) {
    let before = receiver.bodies().len();
    let moved = sandbox.run(&["topic", "seek", "orders", "--group", "mailer", "--to", "beginning", "--json"]).await;
    assert_eq!(moved.objects()[0]["lag"], 15);
    let daemon = sandbox.serve().await;
    let lag = async || {
        let shown = sandbox.run(&["topic", "show", "orders", "--json"]).await.objects().remove(0);
        shown["groups"][0]["lag"].as_i64()
    };
    eventually(TIMEOUT, "the replay", async || lag().await == Some(0)).await;
    assert_eq!(receiver.bodies()[before..], [""; 0]);
    stop(daemon).await;
}
