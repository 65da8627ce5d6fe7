//! Bugs planted in the processes of a soak: its judge must see each of them.

use landfall::{Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SoakPlant {
    /// The relays do not tell themselves apart, and all of them have the shards under one epoch (L7).
    OneEpochForAll,
    /// What the broker refused for now is settled as published (L1).
    SettleWhatFailed,
    /// Each relay takes some of the rows of a key, as `SKIP LOCKED` would hand them out (L4).
    SplitRows,
    /// A relay reads on behind the last row that it has settled: what has a lower number and commits later is never
    /// read (L1).
    RememberPosition,
    /// A writer whose commit broke off writes again without looking (L3).
    RetryBlindly,
}

impl SoakPlant {
    /// How many relays share the rows of a key.
    pub const SPLIT: i64 = 3;

    const ALL: [SoakPlant; 5] =
        [Self::OneEpochForAll, Self::SettleWhatFailed, Self::SplitRows, Self::RememberPosition, Self::RetryBlindly];

    fn as_str(self) -> &'static str {
        match self {
            Self::OneEpochForAll => "one-epoch-for-all",
            Self::SettleWhatFailed => "settle-what-failed",
            Self::SplitRows => "split-rows",
            Self::RememberPosition => "remember-position",
            Self::RetryBlindly => "retry-blindly",
        }
    }
}

impl std::str::FromStr for SoakPlant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|plant| plant.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("bug {text:?} is none of {names}")))
    }
}
