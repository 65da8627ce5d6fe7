//! Import of an existing outbox table by the daemon.

use landfall_testkit::eventually;

use super::support::{Sandbox, TIMEOUT};

const ID: &str = "018f3d2e-0000-7000-8000-000000000001";

async fn make_table(sandbox: &Sandbox) {
    // Creates the database file of SQLite.
    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    let table = "CREATE TABLE outbox (id varchar(36) PRIMARY KEY, aggregatetype varchar(255),
                 aggregateid varchar(255), type varchar(255), payload text)";
    sandbox.sql(table).await;
}

/// Moves rows with Debezium's columns to the broker with one line of configuration, and parks an invalid row.
async fn moves_and_parks(sandbox: &Sandbox) {
    make_table(sandbox).await;
    sandbox.configure("[[import]]\ntable = \"outbox\"\n");
    let daemon = sandbox.serve().await;
    let insert = |id: &str, kind: &str| {
        format!("INSERT INTO outbox VALUES ('{id}', {kind}, '42', 'OrderPlaced', '{{\"total\":250}}')")
    };
    sandbox.sql(&insert(ID, "'Order'")).await;
    sandbox.sql(&insert("bad", "NULL")).await;

    let tail = async || sandbox.run(&["topic", "tail", "outbox.event.Order", "--json"]).await;
    eventually(TIMEOUT, "the row in the topic", async || tail().await.stdout.lines().count() == 1).await;
    let message = &tail().await.objects()[0];
    assert_eq!((&message["id"], &message["key"]), (&ID.into(), &"42".into()));
    assert_eq!((&message["kind"], &message["payload"]["total"]), (&"OrderPlaced".into(), &250.into()));

    let letters = async || sandbox.run(&["dlq", "list", "--json"]).await.objects();
    eventually(TIMEOUT, "the bad row parked", async || letters().await.len() == 1).await;
    let letter = &letters().await[0];
    assert_eq!(letter["error_code"], "VALIDATION_ERROR");
    let error = letter["error"].as_str().unwrap();
    assert!(error.contains("a row of outbox is not a valid message: column aggregatetype is null"), "{error}");
    assert_eq!(sandbox.count("SELECT count(*) FROM outbox").await, 0);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(daemon.exit_code().await, Some(0));
}

#[tokio::test]
async fn debezium_outbox_is_imported_on_sqlite() {
    moves_and_parks(&Sandbox::new()).await;
}

#[tokio::test]
async fn debezium_outbox_is_imported_on_postgres() {
    if let Some(sandbox) = Sandbox::on_postgres().await {
        moves_and_parks(&sandbox).await;
    }
}

#[tokio::test]
async fn debezium_outbox_is_imported_on_mysql() {
    if let Some(sandbox) = Sandbox::on_mysql().await {
        moves_and_parks(&sandbox).await;
    }
}

#[tokio::test]
async fn invalid_mapping_prevents_startup() {
    let sandbox = Sandbox::new();
    make_table(&sandbox).await;
    for (text, code, expected) in [
        ("table = \"outbax\"", 1, "the table outbax to import does not exist"),
        ("table = \"outbox\"\norder_by = \"position\"", 2, "the table outbox has no column position; it has id,"),
        ("tabel = \"outbox\"", 2, "landfall.toml, line 1: import[0] has the unknown key \"tabel\""),
    ] {
        sandbox.configure(&format!("[[import]]\n{text}\n"));
        let finished = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert_eq!(finished.code, code, "{finished:?}");
        let error = finished.stderr.lines().last().unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
