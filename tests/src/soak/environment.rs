//! The servers of a soak: two databases on a private server, and the proxies in front of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::proxy::{Proxy, ProxyCounts};
use landfall_testkit::servers::{MariaDbServer, PostgresServer};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::database_kind::DatabaseKind;
use super::ledger::Ledger;
use crate::worker::Adapter;

#[derive(Debug)]
pub struct Environment {
    /// The addresses without a proxy, for the test itself.
    pub producer: String,
    pub consumer: String,
    /// One proxy for the writers and one for all other processes, so that faults can hit either. Empty without a
    /// server.
    pub proxies: Vec<Proxy>,
    server: Arc<Server>,
    /// Holds SQLite's files and the daemons' configuration; removed when this is dropped.
    folder: TempDir,
}

#[derive(Debug)]
enum Server {
    /// The processes share files.
    None,
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

impl Environment {
    /// Starts a private server, whatever the environment says, because the soak kills it.
    pub async fn prepare<D: Adapter + Ledger>(kind: DatabaseKind, accounts: u32) -> Result<Self> {
        let folder = TempDir::new().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot create a temporary folder").with_source(error)
        })?;
        let (server, producer, consumer, port) = match kind {
            DatabaseKind::Sqlite => {
                let url = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
                (Server::None, url("producer.db"), url("consumer.db"), None)
            }
            DatabaseKind::Postgres => {
                let server = PostgresServer::start().await?;
                let (producer, consumer) = (server.fresh_database().await?, server.fresh_database().await?);
                let port = server.port();
                (Server::Postgres(server), producer, consumer, Some(port))
            }
            DatabaseKind::Mysql => {
                let server = MariaDbServer::start().await?;
                let (producer, consumer) = (server.fresh_database().await?, server.fresh_database().await?);
                let port = server.port();
                (Server::MariaDb(server), producer, consumer, Some(port))
            }
        };
        let mut proxies = Vec::new();
        if let Some(port) = port {
            for _ in 0..2 {
                proxies.push(Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?);
            }
        }
        for url in [&producer, &consumer] {
            let database = D::open(url).await?;
            database.migrate().await?;
            database.create_ledger(accounts).await?;
            database.close().await;
        }
        Ok(Self { producer, consumer, proxies, server: Arc::new(server), folder })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The addresses for the processes: of the writers, of the relays, of the consumer.
    pub fn addresses(&self) -> [String; 3] {
        match &self.proxies[..] {
            [writers, others] => [writers.url(&self.producer), others.url(&self.producer), others.url(&self.consumer)],
            _ => [self.producer.clone(), self.producer.clone(), self.consumer.clone()],
        }
    }

    /// The cuts of all proxies so far.
    pub fn cuts(&self) -> ProxyCounts {
        let mut sum = ProxyCounts::default();
        for counts in self.proxies.iter().map(Proxy::counts) {
            sum.cut += counts.cut;
            sum.cut_before_forwarding += counts.cut_before_forwarding;
            sum.cut_before_response += counts.cut_before_response;
        }
        sum
    }

    /// On PostgreSQL, consumes `count` ids of the outbox, as rolled-back transactions do. Partitions are filled and
    /// truncated by id, and a minute of writes would not get that far. Returns the number of consumed ids: 0 while the
    /// server is down.
    pub async fn skip_ids(&self, count: i64) -> i64 {
        if !matches!(*self.server, Server::Postgres(_)) {
            return 0;
        }
        let skip = async {
            let mut connection = PgConnection::connect(&self.producer).await?;
            let statement = "SELECT max(nextval(pg_get_serial_sequence('landfall_outbox', 'id'))) \
                             FROM generate_series(1, $1)";
            sqlx::query(statement).bind(count).execute(&mut connection).await?;
            connection.close().await
        };
        let skipped: sqlx::Result<()> = skip.await;
        if skipped.is_ok() { count } else { 0 }
    }

    pub fn has_server(&self) -> bool {
        !matches!(*self.server, Server::None)
    }

    /// Stops the server and starts it again after `pause`. Runs in a spawned task.
    pub fn restart(&self, how: StopMode, pause: Duration) -> JoinHandle<Result<()>> {
        let server = self.server.clone();
        tokio::spawn(async move {
            server.stop(how).await?;
            tokio::time::sleep(pause).await;
            server.start().await
        })
    }
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// SIGKILL to all of it.
    Kill,
    /// Stops at once, with crash recovery at the next start.
    Immediately,
    /// Shuts down gracefully.
    Gracefully,
}

impl StopMode {
    pub const ALL: [StopMode; 3] = [Self::Kill, Self::Immediately, Self::Gracefully];
}

impl Server {
    async fn stop(&self, how: StopMode) -> Result<()> {
        match (self, how) {
            (Server::None, _) => Ok(()),
            (Server::Postgres(server), StopMode::Kill) => server.kill_9().await,
            (Server::Postgres(server), StopMode::Immediately) => server.stop_immediately().await,
            (Server::Postgres(server), StopMode::Gracefully) => server.stop().await,
            // MariaDB has no immediate stop.
            (Server::MariaDb(server), StopMode::Kill | StopMode::Immediately) => server.kill_9().await,
            (Server::MariaDb(server), StopMode::Gracefully) => server.stop().await,
        }
    }

    async fn start(&self) -> Result<()> {
        match self {
            Server::None => Ok(()),
            Server::Postgres(server) => server.restart().await,
            Server::MariaDb(server) => server.restart().await,
        }
    }
}
