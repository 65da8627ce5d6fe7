//! `landfall demo` as a user runs it: the real binary, real crashes, and an account that finds planted faults.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test they help")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use landfall_testkit::{VIOLATION, eventually};
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};

const TIMEOUT: Duration = Duration::from_secs(60);

const FIELDS: [&str; 13] = [
    "placed",
    "published",
    "delivered",
    "effects",
    "duplicates_injected",
    "duplicates_absorbed",
    "crashes_injected",
    "parked",
    "redriven",
    "lost",
    "doubled",
    "out_of_order",
    "seconds",
];

fn landfall() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.stdin(Stdio::null());
    command
}

fn demo_in(data: &Path, orders: &str) -> Output {
    landfall().args(["demo", "--once", "--json", "--orders", orders, "--data"]).arg(data).output().unwrap()
}

fn account(output: &Output) -> Value {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("no account ({error}) but {stdout:?}, {stderr}"))
}

fn wrong(account: &Value) -> [&Value; 3] {
    ["lost", "doubled", "out_of_order"].map(|field| &account[field])
}

/// Returns stderr, for asserts.
fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn open(data: &Path, service: &str) -> SqliteConnection {
    SqliteConnectOptions::new().filename(data.join(service).with_extension("db")).connect().await.unwrap()
}

async fn run(connection: &mut SqliteConnection, statement: &'static str) {
    let changed = sqlx::query(statement).execute(connection).await.unwrap().rows_affected();
    assert!(changed > 0, "nothing was planted by {statement}");
}

async fn swap_two_effects_of_one_customer(connection: &mut SqliteConnection) {
    let pair = "SELECT a.rowid, b.rowid FROM effects a JOIN effects b ON a.key = b.key AND b.sequence = a.sequence + 1";
    let (first, second): (i64, i64) = sqlx::query_as(pair).fetch_one(&mut *connection).await.unwrap();
    for (from, to) in [(first, -1), (second, first), (-1, second)] {
        let moved = sqlx::query("UPDATE effects SET rowid = ? WHERE rowid = ?").bind(to).bind(from);
        moved.execute(&mut *connection).await.unwrap();
    }
}

#[test]
fn demo_of_200_orders_survives_crashes_and_balances() {
    let temporary = tempfile::tempdir().unwrap();
    let output = landfall()
        .args(["demo", "--orders", "200", "--once", "--json"])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    let account = account(&output);
    assert_eq!(wrong(&account), [0, 0, 0], "{VIOLATION} {account}: {}", stderr(&output));
    assert!(output.status.success(), "{}", stderr(&output));

    let fields = account.as_object().unwrap();
    assert_eq!(fields.len(), FIELDS.len());
    let figure = |field: &str| fields[field].as_u64().unwrap_or_else(|| panic!("{field} in {account}"));
    assert!(FIELDS.iter().all(|field| fields.contains_key(*field)), "{account}");

    assert_eq!(figure("placed"), 200);
    for field in ["published", "delivered", "effects"] {
        assert_eq!(figure(field), 600, "{field}: each order is reserved, charged and marked as paid");
    }
    assert!(figure("duplicates_injected") >= 10, "about every tenth of 600: {account}");
    assert!(figure("duplicates_absorbed") >= figure("duplicates_injected"), "{account}");
    assert!(figure("crashes_injected") >= 5, "{account}");
    assert!(figure("parked") >= 2, "about one in a hundred: {account}");
    assert_eq!(figure("redriven"), figure("parked"));
    assert!(fields["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "the temporary folder is gone");
}

#[tokio::test]
async fn account_finds_planted_faults() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let output = demo_in(data, "60");
    assert!(output.status.success(), "{}", stderr(&output));
    let crashes = account(&output)["crashes_injected"].clone();

    let mut payment = open(data, "payment").await;
    run(&mut payment, "DELETE FROM effects WHERE rowid = 7").await;
    let output = demo_in(data, "60");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(wrong(&account(&output)), [1, 0, 0], "{}", stderr(&output));
    assert_eq!(account(&output)["crashes_injected"], crashes, "a finished demo is only counted again");
    assert!(stderr(&output).contains("had no effect in payment"), "{}", stderr(&output));

    let mut orders = open(data, "orders").await;
    run(&mut orders, "INSERT INTO effects SELECT * FROM effects WHERE rowid = 9").await;
    assert_eq!(wrong(&account(&demo_in(data, "60"))), [1, 1, 0]);

    let mut stock = open(data, "stock").await;
    swap_two_effects_of_one_customer(&mut stock).await;
    let output = demo_in(data, "60");
    assert_eq!(wrong(&account(&output)), [1, 1, 1], "{}", stderr(&output));

    run(&mut payment, "UPDATE accounts SET balance_cents = balance_cents - 1 WHERE customer = 'customer-01'").await;
    run(&mut stock, "UPDATE stock SET remaining = remaining + 1 WHERE sku = 'anchor'").await;
    let output = demo_in(data, "60");
    assert_eq!(wrong(&account(&output)), [2, 2, 1], "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn killed_demo_resumes_in_its_folder() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let mut director = landfall();
    director.args(["demo", "--once", "--orders", "150", "--data"]).arg(data);
    let mut director = director.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    // The databases exist once the first demo holds the lock of the folder.
    eventually(TIMEOUT, "the databases", async || data.join("orders.db").exists()).await;
    let second = demo_in(data, "150");
    assert_eq!((second.status.code(), second.stdout.len()), (Some(1), 0));
    assert!(stderr(&second).contains("is in use by another demo"), "{}", stderr(&second));
    eventually(TIMEOUT, "the first crash", async || data.join("crashes").exists()).await;
    director.kill().unwrap();
    director.wait().unwrap();

    let output = demo_in(data, "150");
    let account = account(&output);
    assert_eq!(wrong(&account), [0, 0, 0], "{VIOLATION} {account}: {}", stderr(&output));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((&account["placed"], &account["effects"]), (&150.into(), &450.into()));
}

#[test]
fn foreign_folder_is_a_usage_error() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("thesis.txt"), "years of work").unwrap();
    let output = demo_in(data.path(), "10");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is not empty and not a demo folder"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
    assert_eq!(landfall().args(["demo", "--orders", "0"]).output().unwrap().status.code(), Some(2));
}
