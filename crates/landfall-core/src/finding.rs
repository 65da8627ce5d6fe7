//! What the doctor looks for: every way in which a server's settings let a message be lost, reordered or doubled.

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;

use crate::{Result, Span};

/// Something about a live server or the configuration that breaks a promise, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check found it, as `adapter.check`, such as `kafka.min-insync-replicas`: a name that scripts go by.
    pub check: &'static str,
    pub rank: Rank,
    /// What it is about: a topic, a table, a setting, a server.
    pub about: String,
    /// What is so, and what follows from it: a sentence without a capital letter and a full stop.
    pub what: String,
    /// What mends it: the setting with its value, or the command.
    pub mend: String,
}

impl Finding {
    pub fn new(
        (check, rank): (&'static str, Rank),
        about: impl Into<String>,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { check, rank, about: about.into(), what: what.into(), mend: mend.into() }
    }
}

/// What a finding can cost, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// A message that was accepted can be gone.
    Loss,
    /// Messages of one key can change places.
    Order,
    /// A message can be stored or delivered more often than necessary, or than the inbox remembers.
    Duplicates,
    /// Nothing but time.
    Latency,
}

impl Rank {
    pub const ALL: [Rank; 4] = [Rank::Loss, Rank::Order, Rank::Duplicates, Rank::Latency];

    pub fn as_str(self) -> &'static str {
        match self {
            Rank::Loss => "loss",
            Rank::Order => "order",
            Rank::Duplicates => "duplicates",
            Rank::Latency => "latency",
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the examined server has to live up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// For how long a message may come again: the longest retry, the keeping of dead letters and the redrive together.
    pub window: Span,
}

/// A server, or a part of it, that can be examined while it works.
#[async_trait]
pub trait Diagnose: Send + Sync {
    /// Looks, changes nothing, and answers with everything found: nothing for a safe setup. What this account may not
    /// see is a finding too, never silence.
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>>;
}
