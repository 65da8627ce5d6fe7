//! A daemon or command that cannot start prints one error line, exits with the right code and writes nothing.

use super::support::{Finished, Sandbox};

const NOWHERE: &str = "postgres://shop:s3cret@127.0.0.1:1/shop";

fn wrote_nothing(sandbox: &Sandbox) {
    assert!(!sandbox.data().exists(), "something was written to {}", sandbox.data().display());
}

#[tokio::test]
async fn configuration_error_names_the_line() {
    for (text, expected) in [
        ("[relay]\nbach = 1\n", r#"landfall.toml, line 2: unknown key "relay.bach"; did you mean "relay.batch"?"#),
        (
            "[relay]\n# a comment\nbatch = \"many\"\n",
            r#"landfall.toml, line 3: relay.batch must be a whole number from 1 to 10000, not "many""#,
        ),
        ("[relay]\nbatch = 1\n[relay]\n", "landfall.toml, line 3: the configuration is not valid TOML: "),
        ("[database]\nurl = \"env:NOT_SET\"\n", r#"database.url points at the environment variable "NOT_SET""#),
        (
            "[database]\nurl = \"oracle://u:s3cret@h/d\"\n",
            "the known ones are sqlite:, postgres:, postgresql:, mysql:, mariadb:",
        ),
        ("[broker]\nurl = \"carrier-pigeon:loft\"\n", "the known ones are log:"),
        ("[broker]\nurl = \"log:\"\n", "names no folder"),
    ] {
        let sandbox = Sandbox::new();
        sandbox.configure(text);
        let finished = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
        let error = finished.error_line(2);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
        wrote_nothing(&sandbox);
    }
}

#[cfg(feature = "nats")]
#[tokio::test]
async fn broker_setting_without_effect_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.configure("[broker]\nurl = \"nats://u:s3cret@127.0.0.1:1\"\nflush = \"20ms\"\n");
    let finished = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    let error = finished.error_line(2);
    assert!(error.contains("broker.flush = \"20ms\" has no effect on nats: set sync_interval"), "{error}");
    wrote_nothing(&sandbox);
}

#[tokio::test]
async fn environment_and_flags_are_validated() {
    let sandbox = Sandbox::new();
    assert!(
        sandbox.run(&["serve", "--listen", "everywhere"]).await.error_line(2).starts_with("--listen: http.listen must")
    );
    assert!(sandbox.run(&["serve", "--roles", "relay,boss"]).await.error_line(2).contains("role \"boss\""));
    assert!(sandbox.run(&["serve", "--config", "missing.toml"]).await.error_line(2).contains("missing.toml"));
    assert_eq!(sandbox.run(&["serve", "--wrong"]).await.code, 2);
    assert_eq!(sandbox.run(&["topic", "tail", "or ders"]).await.code, 2);
    wrote_nothing(&sandbox);
}

#[tokio::test]
async fn daemon_starts_beside_a_kubernetes_service_of_its_name() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("LANDFALL_SERVICE_HOST", "10.0.0.1").env("LANDFALL_PORT_7700_TCP", "tcp://10.0.0.1:7700");
    command.env("LANDFALL_RELAY_BACH", "1");
    let stderr = super::support::Daemon::start(command).await.stderr();
    assert!(stderr.contains("LANDFALL_RELAY_BACH matches no configuration key and is ignored"), "{stderr}");
    assert!(stderr.contains("did you mean LANDFALL_RELAY_BATCH?"), "{stderr}");
    assert!(!stderr.contains("LANDFALL_SERVICE_HOST") && !stderr.contains("LANDFALL_PORT"), "{stderr}");
}

#[tokio::test]
async fn environment_overrides_the_file() {
    let sandbox = Sandbox::new();
    sandbox.configure("[http]\nlisten = \"127.0.0.1:1\"\n[database]\nurl = \"oracle:file\"\n");
    let mut command = sandbox.command(&["serve"]);
    command.env("LANDFALL_LISTEN", "127.0.0.1:0").env("LANDFALL_DATABASE_URL", "env:ELSEWHERE");
    command.env("ELSEWHERE", "sqlite:elsewhere.db").env("LANDFALL_BROKER_URL", "log:elsewhere");
    let daemon = super::support::Daemon::start(command).await;
    assert!(daemon.stderr().contains("database sqlite:elsewhere.db, broker log:elsewhere"));
    wrote_nothing(&sandbox);
}

#[tokio::test]
async fn non_loopback_listener_needs_tokens() {
    let sandbox = Sandbox::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let finished = sandbox.run(&["serve", "--listen", address]).await;
        assert!(finished.error_line(2).contains("add tokens under [auth]"), "{finished:?}");
    }
    wrote_nothing(&sandbox);
}

#[tokio::test]
async fn unreachable_database_error_hides_the_password() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["migrate", "--database-url", NOWHERE][..],
        &["outbox", "stats", "--database-url", NOWHERE],
        &["dlq", "list", "--database-url", NOWHERE],
    ] {
        let finished: Finished = sandbox.run(arguments).await;
        let error = finished.error_line(1);
        assert!(error.contains("127.0.0.1"), "{error}");
        assert!(!finished.stderr.contains("s3cret"), "{finished:?}");
    }
    wrote_nothing(&sandbox);
}

#[tokio::test]
async fn newer_schema_is_refused_and_unchanged() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    sandbox.sql("INSERT INTO landfall_schema (version) VALUES (99)").await;
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"], &["outbox", "stats"], &["dlq", "list"]] {
        let finished = sandbox.run(arguments).await;
        assert_eq!(finished.code, 1, "{arguments:?}: {finished:?}");
        let last = finished.stderr.lines().last().unwrap();
        assert!(last.starts_with("landfall: ") && last.contains("version 99"), "{finished:?}");
    }
    assert_eq!(sandbox.count("SELECT max(version) FROM landfall_schema").await, 99);
}

#[tokio::test]
async fn tables_must_exist_without_auto_migrate() {
    let sandbox = Sandbox::new();
    sandbox.configure("[database]\nauto_migrate = false\n");
    let finished = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(finished.stderr.contains("run `landfall migrate`"), "{finished:?}");
    assert_eq!(finished.code, 1);
    assert_eq!(sandbox.run(&["migrate"]).await.code, 0);
    sandbox.serve().await;
}

#[tokio::test]
async fn read_only_commands_create_nothing() {
    let sandbox = Sandbox::new();
    for arguments in
        [&["outbox", "stats"][..], &["outbox", "list"], &["dlq", "list"], &["topic", "list"], &["topic", "tail", "o"]]
    {
        sandbox.run(arguments).await.error_line(1);
    }
    wrote_nothing(&sandbox);
}

#[tokio::test]
async fn locked_log_folder_is_reported() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.serve().await;
    daemon.send(r#"{"topic":"o","payload":1}"#).await;

    let second = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(second.code, 1, "{second:?}");
    let error = second.stderr.lines().last().unwrap();
    assert!(error.starts_with("landfall: the folder landfall-data/log is in use by process "), "{error}");

    let published = sandbox.run(&["topic", "publish", "o", "2"]).await;
    let error = published.error_line(1);
    assert!(error.contains("in use") && error.contains("POST http://127.0.0.1:7700/v1/messages"), "{error}");
    assert_eq!(daemon.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let finished = sandbox.run(&["serve", "--listen", &address]).await;
    assert!(finished.error_line(1).starts_with(&format!("cannot listen on {address}: ")), "{finished:?}");
    wrote_nothing(&sandbox);
}
