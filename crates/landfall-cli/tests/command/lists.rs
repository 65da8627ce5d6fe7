//! The verbs that need no daemon: tables, lists and the topics.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::support::{PATIENCE, Place};

#[tokio::test]
async fn migrate_twice_changes_nothing() {
    let place = Place::new();
    let url = "sqlite:landfall-data/landfall.db";
    let first = place.run(&["migrate"]).await;
    assert_eq!((first.code, first.stdout), (0, format!("The tables of {url} are now at version 1.\n")));
    let second = place.run(&["migrate"]).await;
    assert_eq!((second.code, second.stdout), (0, format!("The tables of {url} were already at version 1.\n")));
}

#[tokio::test]
async fn the_statements_are_printed_without_a_server_and_make_the_same_tables() {
    let place = Place::new();
    for scheme in ["postgres:", "mysql:", "mariadb:"] {
        let printed = place.run(&["migrate", "--print", "--database-url", scheme]).await;
        assert!(printed.code == 0 && printed.stdout.contains("CREATE TABLE landfall_outbox"), "{printed:?}");
    }
    let printed = place.run(&["migrate", "--print"]).await;
    assert!(!place.data().exists());

    std::fs::create_dir(place.data()).unwrap();
    std::fs::write(place.data().join("landfall.db"), "").unwrap();
    place.sql(&printed.stdout).await;
    let migrated = place.run(&["migrate"]).await;
    assert!(migrated.stdout.contains("were already at version 1"), "{migrated:?}");
}

#[tokio::test]
async fn what_is_published_is_listed_and_read() {
    let place = Place::new();
    let published = place
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
    let bytes = place.run_with_input(&["topic", "publish", "orders", "--key", "k"], b"\xff\x00").await;
    assert!(bytes.code == 0 && bytes.stdout.contains("stands in orders"), "{bytes:?}");

    let lines = place.run(&["topic", "tail", "orders", "--json"]).await.objects();
    assert_eq!(lines.len(), 2);
    for field in ["id", "topic", "partition", "offset"] {
        assert_eq!(lines[0][field], published[0][field]);
    }
    assert_eq!((&lines[0]["kind"], &lines[0]["headers"]), (&json!("Placed"), &json!({"tenant": "a=b"})));
    assert_eq!((&lines[1]["payload_base64"], lines[1].get("payload")), (&json!("/wA="), None));

    let from_one = place.run(&["topic", "tail", "orders", "--from", "1", "--json"]).await.objects();
    assert_eq!(from_one, lines[1..]);
    assert!(place.run(&["topic", "tail", "orders", "--from", "end", "--json"]).await.objects().is_empty());
    let topics = place.run(&["topic", "list", "--json"]).await.objects();
    assert_eq!((topics.len(), &topics[0]["topic"], &topics[0]["messages"]), (1, &json!("orders"), &json!(2)));
    assert!(place.run(&["topic", "list"]).await.stdout.starts_with("TOPIC   PARTITIONS  MESSAGES"));
    assert!(place.run(&["topic", "tail", "nothing"]).await.sentence(1).contains("nothing"));
}

#[tokio::test]
async fn what_cannot_be_published_is_a_sentence() {
    let place = Place::new();
    let large = "x".repeat(2 * 1024 * 1024);
    let refused = place.run_with_input(&["topic", "publish", "orders"], large.as_bytes()).await;
    assert!(refused.sentence(2).contains("the limit is 1048576"));
    assert!(place.run(&["topic", "publish", "orders", "1", "--header", "a"]).await.sentence(2).contains("NAME=VALUE"));
    assert!(
        place.run(&["topic", "publish", "orders", "1", "--header", "a=x\r\ny"]).await.sentence(2).contains("CR, LF")
    );
    assert_eq!(place.run(&["topic", "publish", "or ders", "1"]).await.code, 2);
    assert!(!place.data().exists());
}

#[tokio::test]
async fn tail_follows_what_comes_later() {
    let place = Place::new();
    assert_eq!(place.run(&["topic", "publish", "orders", "1"]).await.code, 0);
    let mut command = place.command(&["topic", "tail", "orders", "--follow", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line").unwrap().unwrap();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["payload"].clone()
    };
    assert_eq!(next().await, json!(1));
    assert_eq!(place.run(&["topic", "publish", "orders", "2"]).await.code, 0);
    assert_eq!(next().await, json!(2));
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let payload = "x".repeat(500_000);
    for _ in 0..3 {
        assert_eq!(place.run_with_input(&["topic", "publish", "orders"], payload.as_bytes()).await.code, 0);
    }
    let mut command = place.command(&["topic", "tail", "orders", "--json"]);
    // More than a pipe holds is written into one whose other end is closed.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it must end").unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[tokio::test]
async fn help_teaches_with_examples() {
    let place = Place::new();
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
        let help = place.run(&[verb, &["--help"]].concat()).await;
        assert_eq!(help.code, 0);
        for word in ["Examples:", "--config", "--database-url", "--broker-url"] {
            assert!(help.stdout.contains(word), "{verb:?} lacks {word}: {}", help.stdout);
        }
    }
}
