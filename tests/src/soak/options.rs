//! The options of a soak.

use std::path::PathBuf;
use std::time::Duration;

use super::broker_kind::BrokerKind;
use super::database_kind::DatabaseKind;
use super::fault_injector::Focus;
use super::order::Order;
use super::planted_bug::SoakBug;
use super::process_config::ProcessRole;

/// Relays over the in-memory broker.
const RELAYS: u32 = 3;
/// See [`Options::with_every_fault`].
const LONGEST: u32 = 4;

#[derive(Debug, Clone)]
pub struct Options {
    pub database: DatabaseKind,
    pub broker: BrokerKind,
    /// How long faults are injected.
    pub duration: Duration,
    /// Whether faults are injected for longer, up to four times the duration, until each kind has occurred. A
    /// busy machine may take long to kill a process or to restart a server.
    pub with_every_fault: bool,
    pub seed: u64,
    pub order: Order,
    /// The program that runs the processes: `program process JSON`.
    pub program: PathBuf,
    pub planted_bug: Option<SoakBug>,
    pub focus: Focus,
    /// How long the drain may make no progress before it is given up.
    pub stall_timeout: Duration,
    /// Called from time to time with the completed share and a description.
    pub progress: fn(f64, &str),
}

impl Options {
    pub fn new(database: DatabaseKind, duration: Duration, seed: u64, program: impl Into<PathBuf>) -> Self {
        Self {
            database,
            broker: BrokerKind::Memory,
            duration,
            with_every_fault: false,
            seed,
            order: Order::Key,
            program: program.into(),
            planted_bug: None,
            focus: Focus::Everything,
            stall_timeout: Duration::from_secs(30),
            progress: |_, _| {},
        }
    }

    /// Over this broker. A server takes longer than the in-memory broker to notice that faults have ended.
    #[must_use]
    pub fn over(mut self, broker: BrokerKind) -> Self {
        self.broker = broker;
        if broker != BrokerKind::Memory {
            self.stall_timeout = Duration::from_secs(90);
        }
        self
    }

    /// Until each kind of fault has occurred, see [`Options::with_every_fault`].
    #[must_use]
    pub fn with_every_fault(mut self) -> Self {
        self.with_every_fault = true;
        self
    }

    /// The longest time for which faults are injected.
    pub(super) fn longest(&self) -> Duration {
        if self.with_every_fault { LONGEST * self.duration } else { self.duration }
    }

    /// The relays and consumers: of the library over the in-memory broker, otherwise daemons and a group of two.
    pub(super) fn processes(&self) -> Vec<ProcessRole> {
        match self.broker {
            BrokerKind::Memory => {
                let relays = (0..RELAYS).map(ProcessRole::Relay);
                relays.chain([ProcessRole::Consume]).collect()
            }
            _ => vec![ProcessRole::Daemon, ProcessRole::Daemon, ProcessRole::Consume, ProcessRole::Consume],
        }
    }

    /// Writers of a process, apart from the one that holds transactions open; limited by its connections. Fewer over a
    /// server, which is down for seconds: a long backlog holds a poison message for most keys.
    pub(super) fn writers(&self) -> u32 {
        if self.broker == BrokerKind::Memory { 5 } else { 2 }
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(if self.broker == BrokerKind::Memory { 1 } else { 2 })
    }
}
