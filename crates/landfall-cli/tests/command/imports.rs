//! An outbox that is already there, beside the daemon.

use landfall_testkit::eventually;

use super::support::{PATIENCE, Place};

const ID: &str = "018f3d2e-0000-7000-8000-000000000001";

async fn make_table(place: &Place) {
    // Without a daemon there is no file yet.
    assert_eq!(place.run(&["migrate"]).await.code, 0);
    let table = "CREATE TABLE outbox (id varchar(36) PRIMARY KEY, aggregatetype varchar(255),
                 aggregateid varchar(255), type varchar(255), payload text)";
    place.sql(table).await;
}

/// Debezium's columns and one line of configuration, to the broker; what is no message is parked, and seen.
async fn moves_and_parks(place: &Place) {
    make_table(place).await;
    place.configure("[[import]]\ntable = \"outbox\"\n");
    let daemon = place.serve().await;
    let insert = |id: &str, kind: &str| {
        format!("INSERT INTO outbox VALUES ('{id}', {kind}, '42', 'OrderPlaced', '{{\"total\":250}}')")
    };
    place.sql(&insert(ID, "'Order'")).await;
    place.sql(&insert("bad", "NULL")).await;

    let tail = async || place.run(&["topic", "tail", "outbox.event.Order", "--json"]).await;
    eventually(PATIENCE, "the row in the topic", async || tail().await.stdout.lines().count() == 1).await;
    let message = &tail().await.objects()[0];
    assert_eq!((&message["id"], &message["key"]), (&ID.into(), &"42".into()));
    assert_eq!((&message["kind"], &message["payload"]["total"]), (&"OrderPlaced".into(), &250.into()));

    let letters = async || place.run(&["dlq", "list", "--json"]).await.objects();
    eventually(PATIENCE, "the bad row parked", async || letters().await.len() == 1).await;
    let letter = &letters().await[0];
    assert_eq!(letter["error_code"], "VALIDATION_ERROR");
    let error = letter["error"].as_str().unwrap();
    assert!(error.contains("a row of outbox is no message: column aggregatetype is null"), "{error}");
    assert_eq!(place.count("SELECT count(*) FROM outbox").await, 0);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(daemon.ended().await, Some(0));
}

#[tokio::test]
async fn a_line_of_configuration_moves_debeziums_outbox_on_sqlite() {
    moves_and_parks(&Place::new()).await;
}

#[tokio::test]
async fn a_line_of_configuration_moves_debeziums_outbox_on_postgres() {
    if let Some(place) = Place::on_postgres().await {
        moves_and_parks(&place).await;
    }
}

#[tokio::test]
async fn a_line_of_configuration_moves_debeziums_outbox_on_mysql() {
    if let Some(place) = Place::on_mysql().await {
        moves_and_parks(&place).await;
    }
}

#[tokio::test]
async fn a_mapping_that_does_not_fit_keeps_the_daemon_from_starting() {
    let place = Place::new();
    make_table(&place).await;
    for (text, code, sentence) in [
        ("table = \"outbax\"", 1, "the table outbax to import does not exist"),
        ("table = \"outbox\"\norder_by = \"position\"", 2, "the table outbox has no column position; it has id,"),
        ("tabel = \"outbox\"", 2, "landfall.toml, line 1: import[0] has the unknown key \"tabel\""),
    ] {
        place.configure(&format!("[[import]]\n{text}\n"));
        let finished = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        assert_eq!(finished.code, code, "{finished:?}");
        let said = finished.stderr.lines().last().unwrap();
        assert!(said.contains(sentence), "{said}");
    }
}
