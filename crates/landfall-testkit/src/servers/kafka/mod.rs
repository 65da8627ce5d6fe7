//! A private Kafka: one node or a small cluster, on 127.0.0.1 and free ports, with the jars that `scripts/services` keeps.

mod cluster;
mod node;

use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::RwLock;

use super::daemon::{self, Daemon};
use crate::not_run;

pub use cluster::KafkaCluster;
use node::{Node, Voter};

/// How a private Kafka differs from the usual one, which knows no accounts and makes no topics by itself.
#[derive(Debug, Clone, Default)]
pub struct KafkaOptions {
    /// Lines of `server.properties`, which replace the usual ones of the same name.
    pub settings: Vec<(&'static str, String)>,
    /// Names and passwords (SASL/PLAIN). With any, clients without one are turned away, and only [`KafkaServer::ADMIN`]
    /// may do anything until somebody is given a right.
    pub accounts: Vec<(String, String)>,
    /// A certificate and its key, both PEM: clients must speak TLS.
    pub certificate: Option<(String, String)>,
    /// A second listener for clients without accounts: where it listens, and the port that it tells them to use, such
    /// as that of a [`Proxy`](crate::proxy::Proxy).
    pub proxied: Option<(u16, u16)>,
    /// For measurements: starts more slowly and runs faster.
    pub compiled: bool,
}

/// A Kafka node of this process's own. Killed when this is dropped, and also when the process ends in any other way.
#[derive(Debug)]
pub struct KafkaServer {
    daemon: Daemon<Node>,
    options: Arc<RwLock<KafkaOptions>>,
}

impl KafkaServer {
    /// The account that may do everything, where there are accounts.
    pub const ADMIN: &'static str = "admin";

    /// `None` where there is no Kafka; it has been said then, in the name of `test`.
    pub async fn start(test: &str, options: KafkaOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start(options: KafkaOptions) -> Result<Self> {
        let voter = Voter { node: 1, port: daemon::free_port()? };
        Self::start_node(1, vec![voter], options).await
    }

    async fn start_node(number: u32, voters: Vec<Voter>, options: KafkaOptions) -> Result<Self> {
        let (folder, account) = daemon::folder("landfall-kafka-")?;
        let options = Arc::new(RwLock::new(options));
        let node = Node::prepare(number, voters, options.clone(), folder.path(), account)?;
        Ok(Self { daemon: Daemon::start(node, folder, account).await?, options })
    }

    /// `host:port` of the listener for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    /// For the account that may do everything, where there are accounts.
    pub async fn url(&self) -> String {
        let options = self.options.read().await;
        let account = options.accounts.iter().find(|(name, _)| name == Self::ADMIN);
        let account = account.map(|(name, password)| format!("{name}:{password}@")).unwrap_or_default();
        format!("kafka://{account}{}", self.address())
    }

    /// A port that is free now, for [`KafkaOptions::proxied`].
    pub fn free_port() -> Result<u16> {
        daemon::free_port()
    }

    /// As [`KafkaServer::restart`], with other options: how a credential is revoked and given back.
    pub async fn restart_with(&self, change: impl FnOnce(&mut KafkaOptions)) -> Result<()> {
        change(&mut *self.options.write().await);
        self.restart().await
    }
}

daemon::faults!(KafkaServer, daemon);

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "there are no jars of Kafka; scripts/services fetches them")
}
