//! What a process of the soak is told: one JSON value.

use std::net::SocketAddr;
use std::time::Duration;

use landfall::Backoff;
use serde::{Deserialize, Serialize};

use super::order::Order;
use super::plant::SoakPlant;
use super::run::DatabaseKind;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part {
    pub database: DatabaseKind,
    /// The database of the writers and the relays, through the writers' proxy and through the others'.
    pub writers: String,
    pub producer: String,
    /// The database of the consumer, through the others' proxy.
    pub consumer: String,
    /// Where relays publish, and where the consumer gets what they published.
    pub publish: SocketAddr,
    pub deliver: SocketAddr,
    pub play: Play,
    pub seed: u64,
    pub accounts: u32,
    /// The longest that a writer usually keeps a transaction open.
    pub hold_ms: u64,
    pub lease_ms: u64,
    pub order: Order,
    pub plant: Option<SoakPlant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Play {
    /// This many writers, until they are told to stop.
    Write(u32),
    /// One message for each account, without any trouble, and then nothing.
    WriteOnce,
    /// The number tells the relays apart, for the bugs that are planted in them.
    Relay(u32),
    Consume,
    /// The person on call: redrives whatever is parked, on both sides, again and again.
    Operate,
}

impl Part {
    pub fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Short, so that much is retried, and few, so that something is parked.
    pub fn backoff(&self) -> Backoff {
        Backoff { first: Duration::from_millis(20), cap: Duration::from_millis(200), max_attempts: 5 }
    }
}

pub fn account(number: u32) -> String {
    format!("account-{number}")
}
