//! Bugs planted in the processes of a soak: its check must detect each of them.

use landfall::{Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SoakBug {
    /// All relays have the same name and hold the shards under one epoch (L7).
    OneEpochForAll,
    /// A temporary refusal of the broker is settled as published (L1).
    SettleWhatFailed,
    /// Each relay publishes some of the rows of a key, as with `SKIP LOCKED` (L4).
    SplitRows,
    /// A relay reads from a cursor after the last settled row: rows with a lower id that commit later are never read
    /// (L1).
    RememberPosition,
    /// A writer repeats a commit with an unknown outcome without looking it up (L3).
    RetryBlindly,
    /// The consumer does not use its inbox (L3).
    SkipInbox,
    /// The consumer acknowledges messages on receipt (L1).
    AcknowledgeEarly,
}

impl SoakBug {
    /// The number of relays that share the rows of a key.
    pub const SPLIT: i64 = 3;

    const ALL: [SoakBug; 7] = [
        Self::OneEpochForAll,
        Self::SettleWhatFailed,
        Self::SplitRows,
        Self::RememberPosition,
        Self::RetryBlindly,
        Self::SkipInbox,
        Self::AcknowledgeEarly,
    ];

    /// Whether the bug is in the relay. The daemon has no planted bugs.
    pub fn is_in_relay(self) -> bool {
        matches!(self, Self::OneEpochForAll | Self::SettleWhatFailed | Self::SplitRows | Self::RememberPosition)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::OneEpochForAll => "one-epoch-for-all",
            Self::SettleWhatFailed => "settle-what-failed",
            Self::SplitRows => "split-rows",
            Self::RememberPosition => "remember-position",
            Self::RetryBlindly => "retry-blindly",
            Self::SkipInbox => "skip-inbox",
            Self::AcknowledgeEarly => "acknowledge-early",
        }
    }
}

impl std::str::FromStr for SoakBug {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|planted_bug| planted_bug.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("bug {text:?} is none of {names}")))
    }
}
