//! The result of a check, for people and for code.

use std::fmt;

use super::assert_no_violation;
use crate::{Key, MessageId};

/// The result of a check: counts, and every violation with its message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub messages: usize,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    pub effects: usize,
    pub lost: Vec<Violation>,
    pub phantom: Vec<Violation>,
    pub doubled: Vec<Violation>,
    pub reordered: Vec<Reordered>,
}

/// A message with the wrong number of effects in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub group: String,
    pub id: MessageId,
    pub key: Option<Key>,
    /// How often it took effect in the group.
    pub effects: usize,
}

/// A message that took effect after a later message of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reordered {
    pub group: String,
    pub key: Key,
    /// The message that should have taken effect first.
    pub first: MessageId,
    pub overtaken_by: MessageId,
}

impl Report {
    /// Whether there are no violations.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.phantom.is_empty() && self.doubled.is_empty() && self.reordered.is_empty()
    }

    /// Asserts that there are no violations.
    ///
    /// # Panics
    ///
    /// With the whole report, if there are violations.
    pub fn assert_clean(&self) {
        assert_no_violation(self.is_clean(), self);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { messages, ok, failed, unknown, effects, .. } = self;
        writeln!(f, "{messages} messages ({ok} ok, {failed} failed, {unknown} unknown), {effects} effects")?;
        section(f, "lost (ok, but no effect)", &self.lost)?;
        section(f, "phantom (effect of a failed or unsent message)", &self.phantom)?;
        section(f, "doubled (more than one effect)", &self.doubled)?;
        section(f, "reordered (overtaken by a later message of the same key)", &self.reordered)
    }
}

/// Lists only the first entries, so that a report with thousands stays readable.
fn section(f: &mut fmt::Formatter<'_>, title: &str, entries: &[impl fmt::Display]) -> fmt::Result {
    const SHOWN: usize = 20;
    writeln!(f, "{title}: {}", entries.len())?;
    for entry in entries.iter().take(SHOWN) {
        writeln!(f, "  {entry}")?;
    }
    if entries.len() > SHOWN {
        writeln!(f, "  and {} more", entries.len() - SHOWN)?;
    }
    Ok(())
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(key) = &self.key {
            write!(f, " of key {key}")?;
        }
        if !self.group.is_empty() {
            write!(f, " in group {}", self.group)?;
        }
        if self.effects > 1 {
            write!(f, ": {} effects", self.effects)?;
        }
        Ok(())
    }
}

impl fmt::Display for Reordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of key {} in group {} took effect after {}", self.first, self.key, self.group, self.overtaken_by)
    }
}
