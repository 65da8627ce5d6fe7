//! A sender's unsent messages in order, and the keys that are backing off.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use landfall_core::{ErrorCode, Key, Message, Outcome};
use tokio::time::Instant;

use super::sample::keyed;

#[derive(Debug)]
pub(super) struct Outbox {
    keys: Range<usize>,
    created: usize,
    unsent: VecDeque<Message>,
    /// Keys whose first message was not accepted, and when they may be sent again.
    backing_off: HashMap<Key, Instant>,
}

impl Outbox {
    pub(super) fn new(keys: Range<usize>) -> Self {
        Self { keys, created: 0, unsent: VecDeque::new(), backing_off: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Creates messages, round robin over the keys, until `size` are unsent. Returns how many it created.
    pub(super) fn fill(&mut self, size: usize) -> usize {
        let missing = size.saturating_sub(self.unsent.len());
        for number in self.created..self.created + missing {
            let key = self.keys.start + number % self.keys.len();
            self.unsent.push_back(keyed(&format!("key-{key}"), (number / self.keys.len()) as i64 + 1));
        }
        self.created += missing;
        missing
    }

    /// Returns at most `limit` messages of keys that are not backing off.
    pub(super) fn next(&mut self, limit: usize) -> Vec<Message> {
        let now = Instant::now();
        self.backing_off.retain(|_, until| *until > now);
        let ready =
            self.unsent.iter().filter(|message| !message.key.as_ref().is_some_and(|key| self.is_backing_off(key)));
        ready.take(limit).cloned().collect()
    }

    fn is_backing_off(&self, key: &Key) -> bool {
        self.backing_off.contains_key(key)
    }

    /// Removes accepted messages, and makes the keys of the others back off until `until`.
    pub(super) fn settle(&mut self, batch: &[Message], outcomes: &[Outcome], until: Instant) {
        let mut accepted = HashSet::new();
        for (message, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Outcome::Accepted(_) => drop(accepted.insert(message.id)),
                Outcome::Refused(refusal) if refusal.code == ErrorCode::PREDECESSOR => {}
                Outcome::Refused(_) | Outcome::Unknown(_) => {
                    self.backing_off.extend(message.key.clone().map(|key| (key, until)));
                }
            }
        }
        self.unsent.retain(|message| !accepted.contains(&message.id));
    }
}
