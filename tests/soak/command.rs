//! The command: figures on stdout, and an exit code that says whether the run is clean.

use std::process::Output;

use landfall_system_tests::soak::test_run::alone;
use serde_json::Value;

use crate::SOAK;

async fn command(arguments: &[&str]) -> Output {
    tokio::process::Command::new(SOAK).args(arguments).output().await.unwrap()
}

fn figures(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test]
async fn clean_run_exits_with_0_and_prints_figures() {
    let _alone = alone().await;
    let output = command(&["--database", "sqlite", "--minutes", "0.05", "--seed", "71", "--json"]).await;
    let figures = figures(&output);
    assert_eq!(output.status.code(), Some(0), "{figures}");
    assert_eq!((&figures["database"], &figures["seed"]), (&Value::from("sqlite"), &Value::from(71)));
    assert!(figures["messages"].as_u64() > Some(0) && figures["messages"] == figures["effects"], "{figures}");
    for fault in ["lost", "phantom", "doubled", "out_of_order", "contradicted", "shared_epochs", "unsettled"] {
        assert_eq!(figures[fault], 0, "{fault}: {figures}");
    }
}

#[tokio::test]
async fn run_with_a_planted_bug_exits_with_1_and_names_it() {
    let _alone = alone().await;
    let planted = ["--plant", "one-epoch-for-all", "--minutes", "0.1", "--seed", "72"];
    let output = command(&[&["--database", "sqlite", "--json"][..], &planted].concat()).await;
    let figures = figures(&output);
    assert_eq!(output.status.code(), Some(1), "{figures}");
    assert!(figures["wrong"].to_string().contains("two relays settled under one epoch"), "{figures}");
}

#[tokio::test]
async fn unsupported_order_is_a_usage_error() {
    let output = command(&["--database", "sqlite", "--order", "none"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("relays cannot compete"), "{output:?}");
}

#[tokio::test]
async fn bug_in_a_relay_over_a_server_is_a_usage_error() {
    let output = command(&["--broker", "redis", "--plant", "split-rows"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("a daemon relays"), "{output:?}");
}

#[tokio::test]
async fn unknown_database_is_a_usage_error() {
    let output = command(&["--database", "oracle"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is none of sqlite, postgres, mysql"), "{output:?}");
}
