//! What a sender has to send, in order, and which keys wait.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use landfall_core::{ErrorCode, Key, Message, Outcome};
use tokio::time::Instant;

use super::sample::keyed;

#[derive(Debug)]
pub(super) struct Outbox {
    keys: Range<usize>,
    made: usize,
    waiting: VecDeque<Message>,
    /// Keys whose first message was not accepted, and until when they are left alone.
    held: HashMap<Key, Instant>,
}

impl Outbox {
    pub(super) fn new(keys: Range<usize>) -> Self {
        Self { keys, made: 0, waiting: VecDeque::new(), held: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Makes new messages until `size` are waiting, of one key after the other, and answers with how many.
    pub(super) fn fill(&mut self, size: usize) -> usize {
        let missing = size.saturating_sub(self.waiting.len());
        for made in self.made..self.made + missing {
            let key = self.keys.start + made % self.keys.len();
            self.waiting.push_back(keyed(&format!("key-{key}"), (made / self.keys.len()) as i64 + 1));
        }
        self.made += missing;
        missing
    }

    /// At most `limit` messages of keys that do not wait.
    pub(super) fn next(&mut self, limit: usize) -> Vec<Message> {
        let now = Instant::now();
        self.held.retain(|_, until| *until > now);
        let ready = self.waiting.iter().filter(|message| !message.key.as_ref().is_some_and(|key| self.is_held(key)));
        ready.take(limit).cloned().collect()
    }

    fn is_held(&self, key: &Key) -> bool {
        self.held.contains_key(key)
    }

    /// What was accepted is gone; the key of what was not waits, and what is behind it with it.
    pub(super) fn settle(&mut self, batch: &[Message], outcomes: &[Outcome], until: Instant) {
        let mut accepted = HashSet::new();
        for (message, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Outcome::Accepted(_) => drop(accepted.insert(message.id)),
                Outcome::Refused(refusal) if refusal.code == ErrorCode::PREDECESSOR => {}
                Outcome::Refused(_) | Outcome::Unknown(_) => {
                    self.held.extend(message.key.clone().map(|key| (key, until)));
                }
            }
        }
        self.waiting.retain(|message| !accepted.contains(&message.id));
    }
}
