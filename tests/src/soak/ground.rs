//! What a soak stands on: two databases on a server of its own, and the proxies before it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::proxy::{Proxy, ProxyCounts};
use landfall_testkit::servers::{MariaDbServer, PostgresServer};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::ledger::Ledger;
use super::run::DatabaseKind;
use crate::worker::Adapter;

#[derive(Debug)]
pub struct Ground {
    /// The addresses without a proxy between, for whoever looks on.
    pub producer: String,
    pub consumer: String,
    /// The writers' and everybody else's, so that a cut can be meant for the ones or the others. None where there is no
    /// server to connect to.
    pub proxies: Vec<Proxy>,
    server: Arc<Server>,
    /// Holds SQLite's files; removed with the ground.
    _folder: TempDir,
}

#[derive(Debug)]
enum Server {
    /// The processes share files.
    None,
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

impl Ground {
    /// Starts a private server, whatever the environment says: it is going to be killed.
    pub async fn prepare<D: Adapter + Ledger>(kind: DatabaseKind, accounts: u32) -> Result<Self> {
        let folder = TempDir::new()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error))?;
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
        Ok(Self { producer, consumer, proxies, server: Arc::new(server), _folder: folder })
    }

    /// The addresses that the processes get: of the writers, of the relays, of the consumer.
    pub fn addresses(&self) -> [String; 3] {
        match &self.proxies[..] {
            [writers, others] => [writers.url(&self.producer), others.url(&self.producer), others.url(&self.consumer)],
            _ => [self.producer.clone(), self.producer.clone(), self.consumer.clone()],
        }
    }

    /// What the proxies have done so far.
    pub fn cuts(&self) -> ProxyCounts {
        let mut sum = ProxyCounts::default();
        for counts in self.proxies.iter().map(Proxy::counts) {
            sum.cut += counts.cut;
            sum.cut_before_forwarding += counts.cut_before_forwarding;
            sum.cut_before_the_answer += counts.cut_before_the_answer;
        }
        sum
    }

    /// On PostgreSQL, uses up `count` ids of the outbox, as transactions do that are rolled back: its parts are filled and
    /// emptied by ids, and would not be in a minute. Answers with how many: none while the server is down.
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

    /// Takes the server down, and lets it come back after `pause`. Whoever waits for the answer need not stand still.
    pub fn restart(&self, how: Stop, pause: Duration) -> JoinHandle<Result<()>> {
        let server = self.server.clone();
        tokio::spawn(async move {
            server.stop(how).await?;
            tokio::time::sleep(pause).await;
            server.start().await
        })
    }
}

/// How a server goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// SIGKILL to all of it.
    Kill,
    /// Told to stop at once; it recovers when it comes back.
    Immediately,
    /// Told to stop in good order.
    InGoodOrder,
}

impl Stop {
    pub const ALL: [Stop; 3] = [Self::Kill, Self::Immediately, Self::InGoodOrder];
}

impl Server {
    async fn stop(&self, how: Stop) -> Result<()> {
        match (self, how) {
            (Server::None, _) => Ok(()),
            (Server::Postgres(server), Stop::Kill) => server.kill_9().await,
            (Server::Postgres(server), Stop::Immediately) => server.stop_immediately().await,
            (Server::Postgres(server), Stop::InGoodOrder) => server.stop().await,
            // It knows no more than these two.
            (Server::MariaDb(server), Stop::Kill | Stop::Immediately) => server.kill_9().await,
            (Server::MariaDb(server), Stop::InGoodOrder) => server.stop().await,
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
