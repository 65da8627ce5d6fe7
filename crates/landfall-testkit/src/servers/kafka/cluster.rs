//! A cluster of Kafka nodes.

use futures_util::future::try_join_all;
use landfall_core::Result;

use super::node::Voter;
use super::{KafkaOptions, KafkaServer};
use crate::not_run;
use crate::servers::daemon;

/// A cluster of three nodes that tests can kill individually.
#[derive(Debug)]
pub struct KafkaCluster {
    nodes: Vec<KafkaServer>,
}

impl KafkaCluster {
    /// Starts a server. Returns `None` if Kafka is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str, options: KafkaOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start(options: KafkaOptions) -> Result<Self> {
        let voters = (1..=3).map(|node| Ok(Voter { node, port: daemon::free_port()? })).collect::<Result<Vec<_>>>()?;
        // Concurrently: no node is ready before two are up.
        let nodes = voters.iter().map(|voter| KafkaServer::start_node(voter.node, voters.clone(), options.clone()));
        Ok(Self { nodes: try_join_all(nodes).await? })
    }

    pub fn nodes(&self) -> &[KafkaServer] {
        &self.nodes
    }

    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(KafkaServer::address).collect();
        format!("kafka://{}", addresses.join(","))
    }
}
