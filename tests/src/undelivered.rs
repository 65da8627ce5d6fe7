//! Messages without an effect and where they are, for the error of a run that did not drain.

use std::collections::BTreeMap;
use std::fmt;

use landfall::{DeadLetterFilter, DeadLetterStatus, OutboxFilter, Result};

use crate::worker::Adapter;

/// The contents of the outbox and the open dead letters, per key, with the oldest of each in full.
#[derive(Debug, Default)]
pub struct Undelivered {
    /// Per location and key: the number of messages, and the oldest.
    by_location: BTreeMap<(String, String), (usize, String)>,
    /// The stderr of the last worker.
    pub stderr: Vec<String>,
}

impl Undelivered {
    pub async fn collect<D: Adapter>(producer: &D, consumer: &D) -> Result<Self> {
        let mut undelivered = Self::default();
        for row in producer.list(&OutboxFilter::default(), 10_000).await? {
            let key = row.key.as_ref().map(ToString::to_string);
            undelivered.add("the producer's outbox".into(), key, format!("{row:?}"));
        }
        for (side, database) in [("the producer's", producer), ("the consumer's", consumer)] {
            for letter in database.find(&DeadLetterFilter::default(), 10_000).await? {
                if letter.status != DeadLetterStatus::Done {
                    let location = format!("{side} dead letters, {}", letter.status.as_str());
                    undelivered.add(location, letter.key.as_ref().map(ToString::to_string), format!("{letter:?}"));
                }
            }
        }
        Ok(undelivered)
    }

    fn add(&mut self, location: String, key: Option<String>, what: String) {
        self.by_location.entry((location, key.unwrap_or_default())).or_insert((0, what)).0 += 1;
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((location, key), (count, oldest)) in &self.by_location {
            writeln!(f, "{count} of key {key} in {location}; the oldest: {oldest}")?;
        }
        for line in self.stderr.iter().rev().take(20).rev() {
            writeln!(f, "the last worker: {line}")?;
        }
        Ok(())
    }
}
