//! What a worker process is told: one JSON value, its only argument. The test writes it, the worker reads it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use landfall::Backoff;
use serde::{Deserialize, Serialize};

use crate::failpoint::Failpoint;
use crate::plant::Plant;
use crate::service::Service;

/// The topic and the group of every scenario.
pub const TOPIC: &str = "orders";
pub const GROUP: &str = "stock";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The database of the writers and the relay: `sqlite:…`, `postgres:…` or `mysql:…`.
    pub producer: String,
    /// The database of the consumer, of the same kind: a service of its own.
    pub consumer: String,
    pub broker: BrokerAddress,
    pub roles: Vec<Role>,
    /// Decides what the writers do: how long they pause, what they roll back, which messages are poison.
    pub seed: u64,
    /// As many writers as keys; each key has its own.
    pub keys: u32,
    /// How many transactions each writer tries; without it they write until the process ends.
    pub writes: Option<u32>,
    /// Whether some messages fail in the handler: once, or until a person has redriven them.
    pub trouble: bool,
    /// How long the leases of a killed relay keep its successor waiting.
    pub lease_ms: u64,
    /// Messages that the relay takes at a time.
    pub batch: usize,
    /// The first pause after a failure.
    pub backoff_ms: u64,
    /// How often the relay offers a refused message before it is parked.
    pub max_attempts: u32,
    /// How the consuming service is idempotent.
    pub service: Service,
    pub failpoint: Option<Failpoint>,
    pub plant: Option<Plant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Write,
    Relay,
    Consume,
    /// The person on call: redrives whatever is parked, on both sides, again and again.
    Operate,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Write, Role::Relay, Role::Consume, Role::Operate];
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum BrokerAddress {
    /// The embedded log in this folder.
    Log(PathBuf),
    /// A recording broker of the testkit, in the test's own process. It can only be published to.
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
