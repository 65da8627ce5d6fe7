//! The brokers of a soak, by name.

use std::time::Duration;

use landfall::{Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BrokerKind {
    /// In the process of the soak; relays of the library publish to it.
    #[default]
    Memory,
    /// Private servers; daemons publish to them.
    Kafka,
    RabbitMq,
    Nats,
    Redis,
}

impl BrokerKind {
    pub const ALL: [BrokerKind; 5] = [Self::Memory, Self::Kafka, Self::RabbitMq, Self::Nats, Self::Redis];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Kafka => "kafka",
            Self::RabbitMq => "rabbitmq",
            Self::Nats => "nats",
            Self::Redis => "redis",
        }
    }

    /// Parameters of the URL with short timeouts, so that faults of seconds exceed them. Everything else is a default.
    pub(super) fn parameters(self) -> &'static str {
        match self {
            Self::Memory => "",
            Self::Kafka => "timeout=6s&connect_timeout=4s&session_timeout=6s",
            Self::RabbitMq => "timeout=10&connect_timeout=5&heartbeat=4",
            Self::Nats => "timeout=4s&session_timeout=4s",
            Self::Redis => "timeout=4s&connect_timeout=4s&lease=4s",
        }
    }

    /// How long a consumer may be silent before its group continues without it.
    pub(super) fn session(self) -> Duration {
        Duration::from_secs(if self == Self::Kafka { 6 } else { 4 })
    }
}

impl std::fmt::Display for BrokerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for BrokerKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("broker {text:?} is none of {names}")))
    }
}
