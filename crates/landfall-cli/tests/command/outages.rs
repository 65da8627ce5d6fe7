//! Outages at start and later: the daemon waits, says what it waits for, and continues.

use std::net::SocketAddr;

use landfall_testkit::servers::{self, KafkaOptions, KafkaServer, PostgresServer, RabbitMqServer};
use landfall_testkit::{Process, current_test, eventually};

use super::support::{Receiver, Sandbox, TIMEOUT, get, post};

/// A daemon that may not be ready yet.
struct Starting {
    process: Process,
    address: SocketAddr,
}

impl Starting {
    /// Starts the daemon and waits until it listens: it is ready, or waits for a server.
    async fn start(sandbox: &Sandbox) -> Self {
        let process = Process::spawn(sandbox.command(&["serve", "--listen", "127.0.0.1:0"])).unwrap();
        let address_of = |line: String| {
            let (_, rest) = line.split_once("ready on http://").or_else(|| line.split_once("waiting address="))?;
            rest.split(' ').next()?.parse().ok()
        };
        let mut address = None;
        eventually(TIMEOUT, "the address", async || {
            address = process.stderr().into_iter().find_map(address_of);
            address.is_some()
        })
        .await;
        Self { process, address: address.unwrap() }
    }

    /// Waits until `/readyz` says that `part` is not ready, for a reason that contains `word`.
    async fn waits_for(&self, part: &str, word: &str) {
        eventually(TIMEOUT, "the missing part is named", async || {
            let response = get(self.address, "/readyz").await;
            response.status == 503
                && response.json()["parts"][part]["ready"] == false
                && response.json()["parts"][part]["reason"].to_string().contains(word)
        })
        .await;
        assert_eq!(get(self.address, "/healthz").await.status, 200);
    }

    async fn is_ready(&self) {
        eventually(TIMEOUT, "readiness", async || get(self.address, "/readyz").await.status == 200).await;
    }

    async fn send(&self, payload: &str) {
        let body = format!(r#"{{"topic":"orders","payload":{payload}}}"#);
        let response = post(self.address, "/v1/messages", body).await;
        assert_eq!(response.status, 202, "{response:?}");
    }

    fn warnings(&self, text: &str) -> usize {
        self.process.stderr().iter().filter(|line| line.contains("WARN") && line.contains(text)).count()
    }
}

/// Starts the daemon while the broker is down, and then the broker: the message is delivered.
async fn broker_is_waited_for(url: &str, restart: impl AsyncFnOnce()) {
    let sandbox = Sandbox::new();
    let receiver = Receiver::accepting().await;
    sandbox.configure(&format!("{}\n[broker]\nurl = {url:?}\n", receiver.subscription("")));
    let daemon = Starting::start(&sandbox).await;
    daemon.waits_for("broker", "").await;
    assert_eq!(post(daemon.address, "/v1/messages", "{}").await.status, 503);
    eventually(TIMEOUT, "a warning", async || daemon.warnings("part=\"broker\"") >= 1).await;

    restart().await;
    daemon.is_ready().await;
    daemon.send("1").await;
    eventually(TIMEOUT, "the delivery", async || receiver.bodies().contains(&"1".to_owned())).await;
    let metrics = get(daemon.address, "/metrics").await.body;
    assert!(metrics.contains("landfall_broker_up 1"), "{metrics}");
}

#[tokio::test]
async fn rabbitmq_down_at_start_is_waited_for() {
    let Some(server) = RabbitMqServer::start(&current_test()).await else { return };
    server.kill_9().await.unwrap();
    broker_is_waited_for(&server.url(), async || server.restart().await.unwrap()).await;
}

#[tokio::test]
async fn kafka_down_at_start_is_waited_for() {
    let Some(server) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
    let url = server.url().await;
    server.kill_9().await.unwrap();
    broker_is_waited_for(&url, async || server.restart().await.unwrap()).await;
}

#[tokio::test]
async fn broker_outage_later_is_shown() {
    let Some(server) = RabbitMqServer::start(&current_test()).await else { return };
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("[broker]\nurl = {:?}\n", server.url()));
    let daemon = Starting::start(&sandbox).await;
    daemon.is_ready().await;
    server.kill_9().await.unwrap();
    daemon.waits_for("broker", "RabbitMQ").await;
    assert!(get(daemon.address, "/metrics").await.body.contains("landfall_broker_up 0"));
    server.restart().await.unwrap();
    daemon.is_ready().await;
}

#[tokio::test]
async fn database_down_at_start_is_waited_for() {
    let Some(sandbox) = Sandbox::on_own_postgres().await else { return };
    let receiver = Receiver::accepting().await;
    sandbox.configure(&receiver.subscription(""));
    sandbox.server().stop().await.unwrap();
    let daemon = Starting::start(&sandbox).await;
    daemon.waits_for("database", "127.0.0.1").await;
    assert!(daemon.warnings("part=\"database\"") >= 1);
    sandbox.server().restart().await.unwrap();
    daemon.is_ready().await;
    daemon.send("1").await;
    eventually(TIMEOUT, "the delivery", async || receiver.bodies() == ["1"]).await;
}

async fn as_admin(server: &PostgresServer, statement: &'static str) {
    use sqlx::Connection;
    let mut connection = sqlx::PgConnection::connect(&server.url("postgres")).await.unwrap();
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
}

/// The test server asks for no password; a role without the right to log in is rejected in the same way.
#[tokio::test]
async fn rejected_credentials_of_postgres_are_waited_for() {
    if servers::postgres().await.is_none() {
        return;
    }
    let server = PostgresServer::start().await.unwrap();
    as_admin(&server, "CREATE ROLE shop SUPERUSER NOLOGIN").await;
    let sandbox = Sandbox::new();
    let url = format!("postgres://shop:s3cret@127.0.0.1:{}/postgres", server.port());
    sandbox.configure(&format!("[database]\nurl = {url:?}\n"));
    assert_eq!(sandbox.run(&["outbox", "stats"]).await.code, 1, "a command fails at once");

    let daemon = Starting::start(&sandbox).await;
    daemon.waits_for("database", "not permitted to log in").await;
    as_admin(&server, "ALTER ROLE shop LOGIN").await;
    daemon.is_ready().await;
    daemon.send("1").await;

    as_admin(&server, "ALTER ROLE shop NOLOGIN").await;
    as_admin(&server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'").await;
    daemon.waits_for("database", "").await;
    as_admin(&server, "ALTER ROLE shop LOGIN").await;
    daemon.is_ready().await;
    daemon.send("2").await;
    assert!(!daemon.process.stderr().join("\n").contains("s3cret"));
}

#[tokio::test]
async fn rotated_mariadb_password_is_waited_for() {
    let Some(url) = servers::fresh_mysql_database().await else { return };
    let admin = async |statement: &'static str| {
        use sqlx::Connection;
        let mut connection = sqlx::MySqlConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    };
    admin("CREATE USER IF NOT EXISTS 'rotated' IDENTIFIED BY 'old'; GRANT ALL ON *.* TO 'rotated'").await;
    let (_, server) = url.rsplit_once('@').unwrap();
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("[database]\nurl = \"mysql://rotated:new@{server}\"\n"));
    let daemon = Starting::start(&sandbox).await;
    daemon.waits_for("database", "Access denied").await;
    admin("ALTER USER 'rotated' IDENTIFIED BY 'new'").await;
    daemon.is_ready().await;
    daemon.send("1").await;
}
