//! A history of sends and effects, and a checker that compares them.
//!
//! The caller records every send (invoked, then ok, failed or unknown) and every effect in the order of application.
//! [`check`] reports the messages that were lost, invented, doubled or reordered. Time is logical: events happen in the
//! order of recording. [`History::push_at`] merges the sends of several processes; effects need no time, only their
//! order within a group.
//!
//! ```
//! use landfall_core::history::{History, check};
//! use landfall_core::{Key, MessageId};
//!
//! let (mut history, key) = (History::new(["stock"]), Key::new("order-1").ok());
//! let (first, second) = (MessageId::new(), MessageId::new());
//! for id in [first, second] {
//!     history.invoke(id, key.clone(), None);
//!     history.ok(id);
//! }
//! history.effect("stock", second, key);
//! let report = check(&history);
//! assert_eq!(report.lost[0].id, first);
//! assert!(report.doubled.is_empty() && report.phantom.is_empty() && report.reordered.is_empty());
//! ```

mod check;
mod report;
mod violation;

use std::collections::HashMap;

pub use check::check;
pub use report::{Reordered, Report, Violation};
pub use violation::{VIOLATION, assert_no_violation};

use crate::{Key, MessageId};

/// A logical clock that grows with every event; only the order matters.
pub type LogicalTime = u64;

/// An event in the life of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A sender began to send it. A resend under the same id is the same message.
    Invoke { id: MessageId, key: Option<Key>, sequence: Option<i64> },
    /// The send succeeded: the message must take effect.
    Ok { id: MessageId },
    /// The send failed: the message must not take effect.
    Failed { id: MessageId },
    /// The sender does not know the outcome: the message may take effect once. Equivalent to no event at all.
    Unknown { id: MessageId },
    /// The message took effect in `group`.
    Effect { group: String, id: MessageId, key: Option<Key> },
}

/// A record of sends and effects.
#[derive(Debug, Clone, Default)]
pub struct History {
    clock: LogicalTime,
    sends: HashMap<MessageId, SentMessage>,
    /// By group, in the order of application.
    effects: Vec<(String, Vec<Effect>)>,
}

/// A message with all its sends.
#[derive(Debug, Clone, Default)]
struct SentMessage {
    key: Option<Key>,
    sequence: Option<i64>,
    /// The first invocation; `None` if an outcome was recorded without one.
    invoked: Option<LogicalTime>,
    /// The first successful outcome.
    ok: Option<LogicalTime>,
    sends: u32,
    failures: u32,
}

#[derive(Debug, Clone)]
struct Effect {
    id: MessageId,
    key: Option<Key>,
}

impl SentMessage {
    /// Whether every send failed.
    fn is_failed(&self) -> bool {
        self.ok.is_none() && self.failures >= self.sends
    }
}

impl History {
    /// Returns an empty history of messages that must take effect in each of `groups`.
    ///
    /// A group that applied nothing is only known if it is listed here.
    pub fn new<G: Into<String>>(groups: impl IntoIterator<Item = G>) -> Self {
        Self { effects: groups.into_iter().map(|group| (group.into(), Vec::new())).collect(), ..Self::default() }
    }

    pub fn invoke(&mut self, id: MessageId, key: Option<Key>, sequence: Option<i64>) {
        self.push(Event::Invoke { id, key, sequence });
    }

    pub fn ok(&mut self, id: MessageId) {
        self.push(Event::Ok { id });
    }

    pub fn failed(&mut self, id: MessageId) {
        self.push(Event::Failed { id });
    }

    pub fn unknown(&mut self, id: MessageId) {
        self.push(Event::Unknown { id });
    }

    pub fn effect(&mut self, group: &str, id: MessageId, key: Option<Key>) {
        self.push(Event::Effect { group: group.to_owned(), id, key });
    }

    /// Records an event after all events recorded so far.
    pub fn push(&mut self, event: Event) {
        self.push_at(self.clock + 1, event);
    }

    /// Records an event at the given time. Effects keep the order of recording, whatever their time.
    pub fn push_at(&mut self, time: LogicalTime, event: Event) {
        self.clock = self.clock.max(time);
        let earliest = |before: Option<LogicalTime>| Some(before.map_or(time, |before| before.min(time)));
        match event {
            Event::Invoke { id, key, sequence } => {
                let send = self.sends.entry(id).or_default();
                (send.key, send.sequence) = (key, sequence);
                send.invoked = earliest(send.invoked);
                send.sends += 1;
            }
            Event::Ok { id } => {
                let send = self.sends.entry(id).or_default();
                send.ok = earliest(send.ok);
            }
            Event::Failed { id } => self.sends.entry(id).or_default().failures += 1,
            // Equivalent to an invocation without an outcome.
            Event::Unknown { .. } => {}
            Event::Effect { group, id, key } => match self.effects.iter_mut().find(|(known, _)| *known == group) {
                Some((_, effects)) => effects.push(Effect { id, key }),
                None => self.effects.push((group, vec![Effect { id, key }])),
            },
        }
    }
}
