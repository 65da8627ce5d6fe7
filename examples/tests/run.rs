//! Runs every example and compares its output with `expected/<name>.txt`, so that the documentation stays correct.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use landfall_testkit::servers::{fresh_mysql_database, fresh_postgres_database};
use tokio::process::Command;

/// An example ends within seconds; on a busy machine it may take longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One test per example; every file and folder in `src/bin` must be listed. A function after `on` returns the URL of an
/// empty database, which becomes the example's argument; without a server the test is skipped.
macro_rules! examples {
    ($($test:ident: $name:literal $(on $server:path)?,)*) => {
        const EXAMPLES: &[&str] = &[$($name),*];

        $(
            #[tokio::test]
            async fn $test() {
                #[allow(unused_mut, reason = "only some have an argument")]
                let mut example = Command::new(env!(concat!("CARGO_BIN_EXE_", $name)));
                $(
                    let Some(url) = $server().await else { return };
                    example.arg(url);
                )?
                assert_expected_output(example, $name).await;
            }
        )*
    };
}

examples! {
    transfer_is_applied_once: "transfer_sqlite",
    change_and_message_commit_together: "execute_with_message",
    one_insert_is_enough: "plain_sql",
    parked_message_is_redriven_in_order: "park_and_redrive",
    each_delivery_mode_keeps_its_promise: "delivery_modes",
    outage_loses_nothing_and_drains: "outage",
    producer_sequence_is_stored_once: "numbered_producer",
    service_answers_check_backs: "answer_check_backs",
    shop_survives_lost_requests_and_answers: "idempotent_shop",
    shop_replies_to_every_order: "real_world_shop",
    sqlx_shares_its_transaction_on_postgresql: "stack_sqlx_postgres" on fresh_postgres_database,
    sqlx_shares_its_transaction_on_mysql: "stack_sqlx_mysql" on fresh_mysql_database,
    tokio_postgres_shares_its_transaction: "stack_tokio_postgres" on fresh_postgres_database,
    diesel_async_shares_its_transaction: "stack_diesel_async" on fresh_postgres_database,
}

#[tokio::test]
async fn shop_replies_to_every_order_on_postgresql() {
    let Some(url) = fresh_postgres_database().await else { return };
    let mut shop = Command::new(env!("CARGO_BIN_EXE_real_world_shop"));
    shop.arg(url);
    assert_expected_output(shop, "real_world_shop").await;
}

#[test]
fn every_example_is_run() {
    let sources = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin")).unwrap();
    let mut found: Vec<_> =
        sources.map(|source| source.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    found.sort();
    let mut run = EXAMPLES.to_vec();
    run.sort();
    assert_eq!(found, run);
}

async fn assert_expected_output(mut example: Command, name: &str) {
    // A test must not touch the database of the machine's own DATABASE_URL.
    example.env_remove("DATABASE_URL").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, example.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{name} did not end within {TIMEOUT:?}")).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed with {}: {errors}", output.status);

    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(name).with_extension("txt");
    let expected = std::fs::read_to_string(expected).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name} printed something else; stderr: {errors}");
}
