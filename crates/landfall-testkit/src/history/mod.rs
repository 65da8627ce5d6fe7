//! What was sent and what took effect, and whether the two agree.
//!
//! A test records every send as it happens (invoked, then ok, failed or unknown) and every effect in the order in
//! which it was applied, and [`check`] names the messages that were lost, made up, doubled or put out of order. The
//! time is logical: what was recorded first happened first. Sends of several processes are merged with
//! [`History::push_at`]; effects need no time, only their order within a group.
//!
//! ```
//! use landfall_core::{Key, MessageId};
//! use landfall_testkit::history::{History, check};
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

use std::collections::HashMap;

use landfall_core::{Key, MessageId};

pub use check::check;
pub use report::{Named, Reordered, Report};

/// Grows with every event; only the order counts.
pub type LogicalTime = u64;

/// Something that happened to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A sender began to send it. Sent again under the same id it is the same message.
    Invoke { id: MessageId, key: Option<Key>, sequence: Option<i64> },
    /// The sender was told that it was sent: it must take effect.
    Ok { id: MessageId },
    /// The sender was told that it was not sent: it must not take effect.
    Failed { id: MessageId },
    /// The sender was told nothing: it may take effect, once. The same as no answer at all.
    Unknown { id: MessageId },
    /// It took effect in `group`.
    Effect { group: String, id: MessageId, key: Option<Key> },
}

/// A record of sends and effects.
#[derive(Debug, Clone, Default)]
pub struct History {
    clock: LogicalTime,
    sends: HashMap<MessageId, Send>,
    /// Per group, in the order applied.
    effects: Vec<(String, Vec<Effect>)>,
}

/// One message over all its sends.
#[derive(Debug, Clone, Default)]
struct Send {
    key: Option<Key>,
    sequence: Option<i64>,
    /// The first time it was invoked; `None` if an answer was recorded for what nobody sent.
    invoked: Option<LogicalTime>,
    /// The first time a sender was told that it was sent.
    ok: Option<LogicalTime>,
    sends: u32,
    failures: u32,
}

#[derive(Debug, Clone)]
struct Effect {
    id: MessageId,
    key: Option<Key>,
}

impl Send {
    /// Whether every send of it was answered with "not sent".
    fn is_failed(&self) -> bool {
        self.ok.is_none() && self.failures >= self.sends
    }
}

impl History {
    /// An empty history of messages that must take effect in each of `groups`. A group must be named to be missed:
    /// one that applied nothing at all cannot be known otherwise.
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

    /// Records an event that happens after everything recorded so far.
    pub fn push(&mut self, event: Event) {
        self.push_at(self.clock + 1, event);
    }

    /// Records an event at a time of the caller's choosing. Effects are kept in the order recorded, whatever the time.
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
            // An invocation without an answer says the same.
            Event::Unknown { .. } => {}
            Event::Effect { group, id, key } => match self.effects.iter_mut().find(|(known, _)| *known == group) {
                Some((_, effects)) => effects.push(Effect { id, key }),
                None => self.effects.push((group, vec![Effect { id, key }])),
            },
        }
    }
}
