//! Where messages stand that have had no effect: what a person looks at first when something did not drain.

use std::collections::BTreeMap;
use std::fmt;

use landfall::{DeadLetterFilter, DeadLetterStatus, OutboxFilter, Result};

use crate::worker::Adapter;

/// What is still in the outbox and among the open dead letters, per key, with the oldest of each in full.
#[derive(Debug, Default)]
pub struct Remains {
    /// Per place and key: how many, and the oldest.
    places: BTreeMap<(String, String), (usize, String)>,
    /// What the last worker wrote to stderr.
    pub complaints: Vec<String>,
}

impl Remains {
    pub async fn look<D: Adapter>(producer: &D, consumer: &D) -> Result<Self> {
        let mut remains = Self::default();
        for row in producer.list(&OutboxFilter::default(), 10_000).await? {
            let key = row.key.as_ref().map(ToString::to_string);
            remains.add("the producer's outbox".into(), key, format!("{row:?}"));
        }
        for (side, database) in [("the producer's", producer), ("the consumer's", consumer)] {
            for letter in database.find(&DeadLetterFilter::default(), 10_000).await? {
                if letter.status != DeadLetterStatus::Done {
                    let place = format!("{side} dead letters, {}", letter.status.as_str());
                    remains.add(place, letter.key.as_ref().map(ToString::to_string), format!("{letter:?}"));
                }
            }
        }
        Ok(remains)
    }

    fn add(&mut self, place: String, key: Option<String>, what: String) {
        self.places.entry((place, key.unwrap_or_default())).or_insert((0, what)).0 += 1;
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((place, key), (count, oldest)) in &self.places {
            writeln!(f, "{count} of key {key} in {place}; the oldest: {oldest}")?;
        }
        for line in self.complaints.iter().rev().take(20).rev() {
            writeln!(f, "the last worker: {line}")?;
        }
        Ok(())
    }
}
