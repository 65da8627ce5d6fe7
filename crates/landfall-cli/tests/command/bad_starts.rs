//! A daemon or a command that cannot work says why in one sentence, with the right exit code, and leaves no trace.

use super::support::{Finished, Place};

const NOWHERE: &str = "postgres://shop:s3cret@127.0.0.1:1/shop";

fn leaves_no_trace(place: &Place) {
    assert!(!place.data().exists(), "something was written to {}", place.data().display());
}

#[tokio::test]
async fn a_wrong_configuration_is_a_sentence_with_its_line() {
    for (text, sentence) in [
        ("[relay]\nbach = 1\n", r#"landfall.toml, line 2: unknown key "relay.bach"; did you mean "relay.batch"?"#),
        (
            "[relay]\n# a comment\nbatch = \"many\"\n",
            r#"landfall.toml, line 3: relay.batch must be a whole number from 1 to 10000, not "many""#,
        ),
        ("[relay]\nbatch = 1\n[relay]\n", "landfall.toml, line 3: the configuration is not TOML: "),
        ("[database]\nurl = \"env:NOT_SET\"\n", r#"database.url points at the environment variable "NOT_SET""#),
        (
            "[database]\nurl = \"oracle://u:s3cret@h/d\"\n",
            "the known ones are sqlite:, postgres:, postgresql:, mysql:, mariadb:",
        ),
        ("[broker]\nurl = \"carrier-pigeon:loft\"\n", "the known ones are log:"),
        ("[broker]\nurl = \"log:\"\n", "names no folder"),
    ] {
        let place = Place::new();
        place.configure(text);
        let finished = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        let said = finished.sentence(2);
        assert!(said.contains(sentence), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
        leaves_no_trace(&place);
    }
}

#[tokio::test]
async fn the_environment_and_flags_are_checked_too() {
    let place = Place::new();
    let mut command = place.command(&["outbox", "stats"]);
    command.env("LANDFALL_RELAY_BACH", "1");
    let finished = super::support::finish(command).await;
    assert!(finished.sentence(2).contains("did you mean LANDFALL_RELAY_BATCH?"));

    assert!(
        place.run(&["serve", "--listen", "everywhere"]).await.sentence(2).starts_with("--listen: http.listen must")
    );
    assert!(place.run(&["serve", "--roles", "relay,console"]).await.sentence(2).contains("role console"));
    assert!(place.run(&["serve", "--config", "missing.toml"]).await.sentence(2).contains("missing.toml"));
    assert_eq!(place.run(&["serve", "--wrong"]).await.code, 2);
    assert_eq!(place.run(&["topic", "tail", "or ders"]).await.code, 2);
    leaves_no_trace(&place);
}

#[tokio::test]
async fn the_environment_is_a_layer_above_the_file() {
    let place = Place::new();
    place.configure("[http]\nlisten = \"127.0.0.1:1\"\n[database]\nurl = \"oracle:file\"\n");
    let mut command = place.command(&["serve"]);
    command.env("LANDFALL_LISTEN", "127.0.0.1:0").env("LANDFALL_DATABASE_URL", "env:ELSEWHERE");
    command.env("ELSEWHERE", "sqlite:elsewhere.db").env("LANDFALL_BROKER_URL", "log:elsewhere");
    let daemon = super::support::Daemon::start(command).await;
    assert!(daemon.stderr().contains("database sqlite:elsewhere.db, broker log:elsewhere"));
    leaves_no_trace(&place);
}

#[tokio::test]
async fn an_open_door_needs_tokens() {
    let place = Place::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let finished = place.run(&["serve", "--listen", address]).await;
        assert!(finished.sentence(2).contains("add tokens under [auth]"), "{finished:?}");
    }
    leaves_no_trace(&place);
}

#[tokio::test]
async fn an_unreachable_database_is_a_sentence_without_its_password() {
    let place = Place::new();
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0", "--database-url", NOWHERE][..],
        &["migrate", "--database-url", NOWHERE],
        &["outbox", "stats", "--database-url", NOWHERE],
        &["dlq", "list", "--database-url", NOWHERE],
    ] {
        let finished: Finished = place.run(arguments).await;
        let said = finished.sentence(1);
        assert!(said.contains("127.0.0.1"), "{said}");
        assert!(!finished.stderr.contains("s3cret"), "{finished:?}");
    }
    leaves_no_trace(&place);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let place = Place::new();
    assert_eq!(place.run(&["migrate"]).await.code, 0);
    place.sql("INSERT INTO landfall_schema (version) VALUES (99)").await;
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"], &["outbox", "stats"], &["dlq", "list"]] {
        let finished = place.run(arguments).await;
        assert_eq!(finished.code, 1, "{arguments:?}: {finished:?}");
        let last = finished.stderr.lines().last().unwrap();
        assert!(last.starts_with("landfall: ") && last.contains("version 99"), "{finished:?}");
    }
    assert_eq!(place.count("SELECT max(version) FROM landfall_schema").await, 99);
}

#[tokio::test]
async fn without_auto_migrate_the_tables_must_be_there() {
    let place = Place::new();
    place.configure("[database]\nauto_migrate = false\n");
    let finished = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(finished.stderr.contains("run `landfall migrate`"), "{finished:?}");
    assert_eq!(finished.code, 1);
    assert_eq!(place.run(&["migrate"]).await.code, 0);
    place.serve().await;
}

#[tokio::test]
async fn whoever_only_looks_creates_nothing() {
    let place = Place::new();
    for arguments in
        [&["outbox", "stats"][..], &["outbox", "list"], &["dlq", "list"], &["topic", "list"], &["topic", "tail", "o"]]
    {
        place.run(arguments).await.sentence(1);
    }
    leaves_no_trace(&place);
}

#[tokio::test]
async fn a_folder_in_use_is_said_so() {
    let place = Place::new();
    let daemon = place.serve().await;
    daemon.send(r#"{"topic":"o","payload":1}"#).await;

    let second = place.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(second.code, 1, "{second:?}");
    let said = second.stderr.lines().last().unwrap();
    assert!(said.starts_with("landfall: the folder landfall-data/log is in use by process "), "{said}");

    let published = place.run(&["topic", "publish", "o", "2"]).await;
    let said = published.sentence(1);
    assert!(said.contains("in use") && said.contains("POST http://127.0.0.1:7700/v1/messages"), "{said}");
    assert_eq!(daemon.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn an_address_in_use_is_said_so() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let finished = place.run(&["serve", "--listen", &address]).await;
    assert!(finished.sentence(1).starts_with(&format!("cannot listen on {address}: ")), "{finished:?}");
    leaves_no_trace(&place);
}
