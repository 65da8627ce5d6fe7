//! The commands that need no daemon: migrate, list, tail, publish, help.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::support::{Sandbox, TIMEOUT};

#[tokio::test]
async fn migrate_is_idempotent() {
    let sandbox = Sandbox::new();
    let url = "sqlite:landfall-data/landfall.db";
    let first = sandbox.run(&["migrate"]).await;
    assert_eq!((first.code, first.stdout), (0, format!("The tables of {url} are now at version 3.\n")));
    let second = sandbox.run(&["migrate"]).await;
    assert_eq!((second.code, second.stdout), (0, format!("The tables of {url} were already at version 3.\n")));
}

#[tokio::test]
async fn printed_ddl_needs_no_server_and_creates_the_same_tables() {
    let sandbox = Sandbox::new();
    for scheme in ["postgres:", "mysql:", "mariadb:"] {
        let printed = sandbox.run(&["migrate", "--print", "--database-url", scheme]).await;
        assert!(printed.code == 0 && printed.stdout.contains("CREATE TABLE landfall_outbox"), "{printed:?}");
    }
    let printed = sandbox.run(&["migrate", "--print"]).await;
    assert!(!sandbox.data().exists());

    std::fs::create_dir(sandbox.data()).unwrap();
    std::fs::write(sandbox.data().join("landfall.db"), "").unwrap();
    sandbox.sql(&printed.stdout).await;
    let migrated = sandbox.run(&["migrate"]).await;
    assert!(migrated.stdout.contains("were already at version 3"), "{migrated:?}");
}

#[tokio::test]
async fn published_messages_are_listed_and_tailed() {
    let sandbox = Sandbox::new();
    let published = sandbox
        .run(&[
            "topic",
            "publish",
            "orders",
            "{\"n\": 1}",
            "--key",
            "k",
            "--kind",
            "Placed",
            "--header",
            "tenant=a=b",
            "--json",
        ])
        .await
        .objects();
    let bytes = sandbox.run_with_input(&["topic", "publish", "orders", "--key", "k"], b"\xff\x00").await;
    assert!(bytes.code == 0 && bytes.stdout.contains(" to orders, partition "), "{bytes:?}");

    let lines = sandbox.run(&["topic", "tail", "orders", "--json"]).await.objects();
    assert_eq!(lines.len(), 2);
    for field in ["id", "topic", "partition", "offset"] {
        assert_eq!(lines[0][field], published[0][field]);
    }
    assert_eq!((&lines[0]["kind"], &lines[0]["headers"]), (&json!("Placed"), &json!({"tenant": "a=b"})));
    assert_eq!((&lines[1]["payload_base64"], lines[1].get("payload")), (&json!("/wA="), None));

    let from_one = sandbox.run(&["topic", "tail", "orders", "--from", "1", "--json"]).await.objects();
    assert_eq!(from_one, lines[1..]);
    assert!(sandbox.run(&["topic", "tail", "orders", "--from", "end", "--json"]).await.objects().is_empty());
    let topics = sandbox.run(&["topic", "list", "--json"]).await.objects();
    assert_eq!((topics.len(), &topics[0]["topic"], &topics[0]["messages"]), (1, &json!("orders"), &json!(2)));
    assert!(sandbox.run(&["topic", "list"]).await.stdout.starts_with("TOPIC   PARTITIONS  MESSAGES"));
    assert!(sandbox.run(&["topic", "tail", "nothing"]).await.error_line(1).contains("nothing"));
}

#[tokio::test]
async fn invalid_message_is_not_published() {
    let sandbox = Sandbox::new();
    let large = "x".repeat(2 * 1024 * 1024);
    let refused = sandbox.run_with_input(&["topic", "publish", "orders"], large.as_bytes()).await;
    assert!(refused.error_line(2).contains("the limit is 1048576"));
    assert!(
        sandbox.run(&["topic", "publish", "orders", "1", "--header", "a"]).await.error_line(2).contains("NAME=VALUE")
    );
    assert!(
        sandbox
            .run(&["topic", "publish", "orders", "1", "--header", "a=x\r\ny"])
            .await
            .error_line(2)
            .contains("CR, LF")
    );
    assert_eq!(sandbox.run(&["topic", "publish", "or ders", "1"]).await.code, 2);
    assert!(!sandbox.data().exists());
}

#[tokio::test]
async fn tail_follow_prints_new_messages() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["topic", "publish", "orders", "1"]).await.code, 0);
    let mut command = sandbox.command(&["topic", "tail", "orders", "--follow", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await.expect("a line").unwrap().unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["payload"].clone()
    };
    assert_eq!(next().await, json!(1));
    assert_eq!(sandbox.run(&["topic", "publish", "orders", "2"]).await.code, 0);
    assert_eq!(next().await, json!(2));
}

#[tokio::test]
async fn closed_stdout_is_no_error() {
    let sandbox = Sandbox::new();
    let payload = "x".repeat(500_000);
    for _ in 0..3 {
        assert_eq!(sandbox.run_with_input(&["topic", "publish", "orders"], payload.as_bytes()).await.code, 0);
    }
    let mut command = sandbox.command(&["topic", "tail", "orders", "--json"]);
    // Writes more than a pipe buffers into a pipe whose reader is closed.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await.expect("the command must exit").unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[tokio::test]
async fn help_has_examples_for_every_command() {
    let sandbox = Sandbox::new();
    for verb in [
        &["serve"][..],
        &["migrate"],
        &["outbox"],
        &["outbox", "stats"],
        &["outbox", "list"],
        &["outbox", "show"],
        &["outbox", "retry"],
        &["outbox", "park"],
        &["outbox", "purge"],
        &["dlq", "list"],
        &["dlq", "show"],
        &["dlq", "redrive"],
        &["topic", "create"],
        &["topic", "list"],
        &["topic", "show"],
        &["topic", "configure"],
        &["topic", "grow"],
        &["topic", "delete"],
        &["topic", "tail"],
        &["topic", "publish"],
        &["topic", "verify"],
    ] {
        let help = sandbox.run(&[verb, &["--help"]].concat()).await;
        assert_eq!(help.code, 0);
        for word in ["Examples:", "--config", "--database-url", "--broker-url"] {
            assert!(help.stdout.contains(word), "{verb:?} lacks {word}: {}", help.stdout);
        }
    }
}
