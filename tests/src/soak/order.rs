//! The order that the relays of a soak keep, with the names of the relay's configuration.

use landfall::{Error, Result};
use serde::{Deserialize, Serialize};

use super::database_kind::DatabaseKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Per key; the check compares the order of effects.
    #[default]
    Key,
    /// None: relays compete for single messages, and the check ignores the order.
    None,
}

impl Order {
    const ALL: [Order; 2] = [Self::Key, Self::None];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::None => "none",
        }
    }

    /// Relays compete with row locks, which SQLite does not have.
    pub fn is_possible_on(self, database: DatabaseKind) -> bool {
        self == Self::Key || database.has_concurrent_writers()
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|order| order.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("order {text:?} is none of {names}")))
    }
}
