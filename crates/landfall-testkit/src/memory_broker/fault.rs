//! Faults on demand.

use std::collections::VecDeque;
use std::fmt;

use landfall_core::{ErrorCode, Message, Outcome};

/// What happens to a message instead of being accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused, and may be taken later.
    Refuse,
    /// Refused because the broker cannot be reached at all: no message is to blame.
    Unavailable,
    /// Refused for good.
    RefuseForGood,
    /// The answer is lost, and so is the message.
    UnknownAndLost,
    /// The answer is lost, and the message is stored.
    UnknownAndStored,
}

impl Fault {
    pub(super) fn is_stored(self) -> bool {
        self == Fault::UnknownAndStored
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Fault::Refuse => Outcome::retry_later(ErrorCode::new("FULL"), "the test asked for a refusal"),
            Fault::Unavailable => Outcome::retry_later(ErrorCode::UNAVAILABLE, "the test asked for an outage"),
            Fault::RefuseForGood => Outcome::refuse(ErrorCode::VALIDATION, "the test asked for a refusal for good"),
            Fault::UnknownAndLost | Fault::UnknownAndStored => Outcome::Unknown("the test lost the answer".into()),
        }
    }
}

type Matches = Box<dyn Fn(&Message) -> bool + Send + Sync>;

/// What is to fail. Faults by number come before faults by predicate, and a message meets at most one.
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

    /// The fault that `message` meets, if any.
    pub(super) fn meet(&mut self, message: &Message) -> Option<Fault> {
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
