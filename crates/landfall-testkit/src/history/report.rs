//! What a check found, for people and for code.

use std::fmt;

use landfall_core::{Key, MessageId};

/// The account of a history: every violation with the message named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub messages: usize,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    pub effects: usize,
    pub lost: Vec<Named>,
    pub phantom: Vec<Named>,
    pub doubled: Vec<Named>,
    pub reordered: Vec<Reordered>,
}

/// A message that did not do what it should have done in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub group: String,
    pub id: MessageId,
    pub key: Option<Key>,
    /// How often it took effect there.
    pub times: usize,
}

/// A message whose effect came after that of a later one of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reordered {
    pub group: String,
    pub key: Key,
    /// The one that should have come first.
    pub first: MessageId,
    pub overtaken_by: MessageId,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.phantom.is_empty() && self.doubled.is_empty() && self.reordered.is_empty()
    }

    /// # Panics
    ///
    /// With the whole account, unless nothing is wrong.
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { messages, ok, failed, unknown, effects, .. } = self;
        writeln!(f, "{messages} messages ({ok} ok, {failed} failed, {unknown} unknown), {effects} effects")?;
        section(f, "lost (ok, and without effect)", &self.lost)?;
        section(f, "phantom (an effect of what failed or was never sent)", &self.phantom)?;
        section(f, "doubled (more than one effect)", &self.doubled)?;
        section(f, "reordered (overtaken by a later message of the same key)", &self.reordered)
    }
}

/// The first of them by name; a thousand would not say more.
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

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(key) = &self.key {
            write!(f, " of key {key}")?;
        }
        if !self.group.is_empty() {
            write!(f, " in group {}", self.group)?;
        }
        if self.times > 1 {
            write!(f, ": {} effects", self.times)?;
        }
        Ok(())
    }
}

impl fmt::Display for Reordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of key {} in group {} took effect after {}", self.first, self.key, self.group, self.overtaken_by)
    }
}
