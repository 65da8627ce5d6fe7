//! The configuration of a process of the soak, passed as JSON.

use std::time::Duration;

use landfall::Backoff;
use serde::{Deserialize, Serialize};

use super::broker::BrokerLocation;
use super::database_kind::DatabaseKind;
use super::order::Order;
use super::planted_bug::SoakBug;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessConfig {
    pub database: DatabaseKind,
    /// The database of the writers and the relays: through the writers' proxy, and through the other one.
    pub writers: String,
    pub producer: String,
    /// The database of the consumer, through the other proxy.
    pub consumer: String,
    pub broker: BrokerLocation,
    pub role: ProcessRole,
    pub seed: u64,
    pub accounts: u32,
    /// The usual maximum of how long a writer keeps a transaction open.
    pub hold_ms: u64,
    pub lease_ms: u64,
    pub order: Order,
    pub planted_bug: Option<SoakBug>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRole {
    /// This many writers, until SIGTERM.
    Write(u32),
    /// One plain message for each account, and then nothing.
    WriteOnce,
    /// The number distinguishes the relays, for planted bugs.
    Relay(u32),
    /// `landfall serve`: a relay as users run it, with its housekeeper.
    Daemon,
    Consume,
    /// An operator: redrives all parked messages on both sides repeatedly.
    Operate,
}

impl ProcessConfig {
    pub fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Short, so that there are many retries, and few attempts, so that some messages are parked.
    pub fn backoff(&self) -> Backoff {
        Backoff { first: Duration::from_millis(20), cap: Duration::from_millis(200), max_attempts: 5 }
    }
}

pub fn account(number: u32) -> String {
    format!("account-{number}")
}
