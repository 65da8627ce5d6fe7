//! The command: figures on stdout, and an exit code that says whether anything is wrong.

use std::process::Output;

use serde_json::Value;

use crate::{SOAK, alone};

async fn command(arguments: &[&str]) -> Output {
    tokio::process::Command::new(SOAK).args(arguments).output().await.unwrap()
}

fn figures(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test]
async fn a_clean_run_exits_with_0_and_says_what_happened() {
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
async fn a_run_with_a_fault_exits_with_1_and_names_it() {
    let _alone = alone().await;
    let planted = ["--plant", "one-epoch-for-all", "--minutes", "0.1", "--seed", "72"];
    let output = command(&[&["--database", "sqlite", "--json"][..], &planted].concat()).await;
    let figures = figures(&output);
    assert_eq!(output.status.code(), Some(1), "{figures}");
    assert!(figures["wrong"].to_string().contains("two relays settled under one epoch"), "{figures}");
}

#[tokio::test]
async fn an_order_that_the_database_cannot_work_in_is_wrong_use() {
    let output = command(&["--database", "sqlite", "--order", "none"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("relays cannot compete"), "{output:?}");
}

#[tokio::test]
async fn a_database_that_nobody_knows_is_wrong_use() {
    let output = command(&["--database", "oracle"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is none of sqlite, postgres, mysql"), "{output:?}");
}
