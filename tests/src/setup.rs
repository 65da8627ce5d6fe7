//! The configuration of a worker process: its only argument, as JSON.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use landfall::Backoff;
use serde::{Deserialize, Serialize};

use crate::failpoint::Failpoint;
use crate::planted_bug::PlantedBug;
use crate::service::Service;

/// The topic and the group of every scenario.
pub const TOPIC: &str = "orders";
pub const GROUP: &str = "stock";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The database of the writers and the relay: `sqlite:…`, `postgres:…` or `mysql:…`.
    pub producer: String,
    /// The database of the consumer, which is a separate service; of the same kind.
    pub consumer: String,
    pub broker: BrokerAddress,
    pub roles: Vec<Role>,
    /// Determines the writers' pauses, their rollbacks, and which messages are poison.
    pub seed: u64,
    /// The number of keys; each has its own writer.
    pub keys: u32,
    /// The number of transactions of each writer; `None` for no limit.
    pub writes: Option<u32>,
    /// Whether some messages fail in the handler: once, or until they are redriven.
    pub handler_failures: bool,
    /// The lease of a relay; the successor of a killed one waits for its expiry.
    pub lease_ms: u64,
    /// The relay's batch size.
    pub batch: usize,
    /// The first backoff after a failure.
    pub backoff_ms: u64,
    /// How often the relay publishes a refused message before it is parked.
    pub max_attempts: u32,
    /// The idempotency strategy of the consuming service.
    pub service: Service,
    pub failpoint: Option<Failpoint>,
    pub planted_bug: Option<PlantedBug>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Write,
    Relay,
    Consume,
    /// An operator: redrives all parked messages on both sides repeatedly.
    Operate,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Write, Role::Relay, Role::Consume, Role::Operate];
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum BrokerAddress {
    /// The embedded log in this folder.
    Log(PathBuf),
    /// A recording broker in the test's own process. A worker can only publish to it.
    Remote(SocketAddr),
}

impl Setup {
    pub fn backoff(&self) -> Backoff {
        let first = Duration::from_millis(self.backoff_ms);
        Backoff { first, cap: first * 10, max_attempts: self.max_attempts }
    }

    pub fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}
