use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::name::quoted;
use crate::{Error, Result};

/// The delivery guarantee of a message, chosen by its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Fire and forget: removed from the outbox before it is published, never retried. A crash or a refusal loses it.
    AtMostOnce,
    /// Published until the broker confirms it. The handler runs for every delivery, so it may run twice.
    AtLeastOnce,
    /// At least once, and the consumer's inbox deduplicates: one effect per message id.
    #[default]
    EffectivelyOnce,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::AtMostOnce, Mode::AtLeastOnce, Mode::EffectivelyOnce];

    pub fn as_str(self) -> &'static str {
        match self {
            Mode::AtMostOnce => "at-most-once",
            Mode::AtLeastOnce => "at-least-once",
            Mode::EffectivelyOnce => "effectively-once",
        }
    }

    /// Returns whether the inbox stores the id, so that a duplicate has no effect.
    pub fn is_deduplicated(self) -> bool {
        self == Mode::EffectivelyOnce
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
            let text = quoted(text);
            Error::invalid(format!("mode {text} is none of at-most-once, at-least-once, effectively-once"))
        })
    }
}
