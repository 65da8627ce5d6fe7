//! The databases of a soak, by name.

use landfall::{Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseKind {
    Sqlite,
    #[default]
    Postgres,
    Mysql,
}

impl DatabaseKind {
    pub const ALL: [DatabaseKind; 3] = [Self::Sqlite, Self::Postgres, Self::Mysql];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// Whether an open transaction does not block other writers.
    pub fn has_concurrent_writers(self) -> bool {
        self != Self::Sqlite
    }

    /// On SQLite an open transaction blocks all other writers, so it is short.
    pub(super) fn hold_ms(self) -> u64 {
        match self {
            Self::Sqlite => 8,
            Self::Postgres | Self::Mysql => 100,
        }
    }
}

impl std::fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for DatabaseKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("database {text:?} is none of {names}")))
    }
}
