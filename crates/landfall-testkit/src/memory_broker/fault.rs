//! Publish faults on demand.

use std::collections::VecDeque;
use std::fmt;

use landfall_core::{ErrorCode, Message, Outcome};

/// What happens to a published message instead of being accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused, retriable.
    Refuse,
    /// Refused, retriable, because the broker is unavailable: the message is not the cause.
    Unavailable,
    /// Refused, retriable, because the topic does not exist yet.
    UnknownTopic,
    /// Refused, not retriable.
    RefusePermanently,
    /// The outcome is unknown, and the message is lost.
    UnknownAndLost,
    /// The outcome is unknown, and the message is stored.
    UnknownAndStored,
}

impl Fault {
    pub(super) fn is_stored(self) -> bool {
        self == Fault::UnknownAndStored
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Fault::Refuse => Outcome::retry_later(ErrorCode::new("FULL"), "refused by the test"),
            Fault::Unavailable => Outcome::retry_later(ErrorCode::UNAVAILABLE, "made unavailable by the test"),
            Fault::UnknownTopic => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "hidden by the test"),
            Fault::RefusePermanently => Outcome::refuse(ErrorCode::VALIDATION, "permanently refused by the test"),
            Fault::UnknownAndLost | Fault::UnknownAndStored => Outcome::Unknown("response dropped by the test".into()),
        }
    }
}

type Matches = Box<dyn Fn(&Message) -> bool + Send + Sync>;

/// The pending faults. Faults by count take precedence over faults by predicate, and a message gets at most one.
#[derive(Default)]
pub(super) struct Faults {
    next: VecDeque<Fault>,
    when: Vec<(Matches, Fault)>,
}

impl Faults {
    pub(super) fn next(&mut self, count: usize, fault: Fault) {
        self.next.extend(std::iter::repeat_n(fault, count));
    }

    pub(super) fn when(&mut self, matches: Matches, fault: Fault) {
        self.when.push((matches, fault));
    }

    pub(super) fn heal(&mut self) {
        *self = Self::default();
    }

    /// Returns the fault of `message`, if any.
    pub(super) fn take_for(&mut self, message: &Message) -> Option<Fault> {
        self.next
            .pop_front()
            .or_else(|| self.when.iter().find(|(matches, _)| matches(message)).map(|(_, fault)| *fault))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("next", &self.next).field("when", &self.when.len()).finish()
    }
}
