//! Findings of the doctor: every way in which a live setup can lose, reorder or double a message.

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;

use crate::{Result, Span};

/// A property of a live server or the configuration that breaks a promise, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, as `adapter.check`, such as `kafka.min-insync-replicas`. Scripts rely on this name.
    pub check: &'static str,
    pub rank: Rank,
    /// The object: a topic, a table, a setting, a server.
    pub about: String,
    /// The fact and its consequence: a sentence without initial capital and full stop.
    pub what: String,
    /// The remedy: the setting with its value, or the command.
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

/// What a finding can cost, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// An accepted message can be lost.
    Loss,
    /// Messages of one key can be reordered.
    Order,
    /// A message can be duplicated unnecessarily, or after the inbox has forgotten it.
    Duplicates,
    /// Messages can be delayed.
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

/// What the diagnosed server has to satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// For how long a duplicate may arrive: the longest retry, the retention of dead letters and the redrive together.
    pub window: Span,
}

/// A live server, or a part of one, that the doctor can diagnose.
#[async_trait]
pub trait Diagnose: Send + Sync {
    /// Returns all findings without changing anything; empty for a safe setup. A setting that this account may not read
    /// is a finding too.
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>>;
}
