//! A private Kafka on 127.0.0.1 and free ports: one node or a small cluster, with the jars from `scripts/services`.

mod cluster;
mod node;

use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::RwLock;

use super::daemon::{self, Daemon};
use crate::not_run;

pub use cluster::KafkaCluster;
use node::{Node, Voter};

/// The configuration of a private Kafka. By default it has no accounts and does not create topics automatically.
#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// Lines of `server.properties` that override the defaults.
    pub settings: Vec<(&'static str, String)>,
    /// Names and passwords (SASL/PLAIN). If there are any, clients must authenticate, and only [`KafkaServer::ADMIN`]
    /// has rights until ACLs grant others.
    pub accounts: Vec<(String, String)>,
    /// A certificate and its key, both PEM: clients must then use TLS.
    pub certificate: Option<(String, String)>,
    /// A second listener without authentication: its port, and the port that it advertises, such as that of a
    /// [`Proxy`](crate::proxy::Proxy).
    pub proxied: Option<(u16, u16)>,
    /// Enables the optimizing JIT compiler, for benchmarks: slower start, faster run.
    pub compiled: bool,
}

/// A private Kafka node, killed when this is dropped and when the process ends in any other way.
#[derive(Debug)]
pub struct KafkaServer {
    daemon: Daemon<Node>,
    options: Arc<RwLock<KafkaOptions>>,
}

impl KafkaServer {
    /// The account with all rights, if there are accounts.
    pub const ADMIN: &'static str = "admin";

    /// Starts a server. Returns `None` if Kafka is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str, options: KafkaOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// As [`KafkaServer::start`], with the reason if it cannot start.
    pub async fn try_start(options: KafkaOptions) -> Result<Self> {
        let voter = Voter { node: 1, port: daemon::free_port()? };
        Self::start_node(1, vec![voter], options).await
    }

    async fn start_node(number: u32, voters: Vec<Voter>, options: KafkaOptions) -> Result<Self> {
        let (folder, account) = daemon::folder("landfall-kafka-")?;
        let options = Arc::new(RwLock::new(options));
        let node = Node::prepare(number, voters, options.clone(), folder.path(), account)?;
        Ok(Self { daemon: Daemon::start(node, folder, account).await?, options })
    }

    /// `host:port` of the client listener.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    /// The URL, with the credentials of [`KafkaServer::ADMIN`] if there are accounts.
    pub async fn url(&self) -> String {
        let options = self.options.read().await;
        let account = options.accounts.iter().find(|(name, _)| name == Self::ADMIN);
        let account = account.map(|(name, password)| format!("{name}:{password}@")).unwrap_or_default();
        format!("kafka://{account}{}", self.address())
    }

    /// Returns a free port, for [`KafkaOptions::proxied`].
    pub fn free_port() -> Result<u16> {
        daemon::free_port()
    }

    /// As [`KafkaServer::restart`], with changed options: to revoke and restore a credential, for example.
    pub async fn restart_with(&self, change: impl FnOnce(&mut KafkaOptions)) -> Result<()> {
        change(&mut *self.options.write().await);
        self.restart().await
    }
}

daemon::faults!(KafkaServer, daemon);

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "Kafka is not installed; run scripts/services")
}
