//! The result of a run: its history and its tables, compared by the testkit's history checker.
//!
//! The committed rows of `orders` are the truth. A transaction whose process was killed before it reported an outcome
//! is committed or not. If it is, its message must have taken effect; if not, it must not.

use std::collections::HashMap;

use landfall::{Key, MessageId};
use landfall_testkit::assert_no_violation;
use landfall_testkit::history::{History, Report, check};

use crate::business_tables::Order;
use crate::history::Event;
use crate::sequence_check::bad_sequences;
use crate::setup::GROUP;
use crate::undelivered::Undelivered;

#[derive(Debug)]
pub struct CheckReport {
    /// Lost, duplicate, phantom and reordered messages.
    pub report: Report,
    /// Results of writers that contradict the database: a lost commit, or a rollback that is stored.
    pub contradicted: Vec<MessageId>,
    /// Keys whose effects are not exactly 1, 2, 3… in this order, up to the committed number.
    pub bad_sequences: Vec<String>,
    /// Transactions with an unknown outcome, and those that were committed.
    pub unanswered: usize,
    pub unanswered_committed: usize,
    /// Transactions that were rolled back.
    pub rolled_back: usize,
    /// Messages without an effect, and where they are.
    pub undelivered: Undelivered,
}

impl CheckReport {
    pub fn new(events: &[Event], orders: &[Order], effects: &[Order], undelivered: Undelivered) -> Self {
        let committed: HashMap<MessageId, &Order> = orders.iter().map(|order| (order.message_id, order)).collect();
        let ends = ends(events);
        let mut history = History::new([GROUP]);
        let mut contradicted = Vec::new();
        for event in events {
            match event {
                Event::Invoke { id, key } => {
                    history.invoke(*id, Key::new(key).ok(), committed.get(id).map(|order| order.sequence));
                    match (ends.get(id), committed.contains_key(id)) {
                        (Some(Event::Ok { .. }), false) | (Some(Event::Failed { .. }), true) => contradicted.push(*id),
                        _ => {}
                    }
                }
                Event::Ok { id } => history.ok(*id),
                Event::Failed { id } => history.failed(*id),
                _ => {}
            }
        }
        let mut result = Self {
            report: Report::default(),
            contradicted,
            bad_sequences: bad_sequences(
                true,
                orders.iter().map(|order| order.key.as_str()),
                effects.iter().map(|effect| (effect.key.as_str(), effect.sequence)),
            ),
            unanswered: 0,
            unanswered_committed: 0,
            rolled_back: ends.values().filter(|end| matches!(end, Event::Failed { .. })).count(),
            undelivered,
        };
        // Transactions without an outcome have no known end either. The history gets their result last, so that only
        // their sequence orders them.
        for event in events {
            let Event::Invoke { id, .. } = event else { continue };
            if matches!(ends.get(id), None | Some(Event::Unknown { .. })) {
                result.unanswered += 1;
                if committed.contains_key(id) {
                    result.unanswered_committed += 1;
                    history.ok(*id);
                } else {
                    history.failed(*id);
                }
            }
        }
        for effect in effects {
            history.effect(GROUP, effect.message_id, Key::new(&effect.key).ok());
        }
        result.report = check(&history);
        result
    }

    /// # Panics
    ///
    /// With the whole report, unless the result is the same as without kills, apart from the order.
    pub fn assert_clean_except_order(&self) {
        let Report { lost, phantom, doubled, ok, effects, .. } = &self.report;
        assert_no_violation(lost.is_empty() && phantom.is_empty() && doubled.is_empty(), self);
        assert_no_violation(self.contradicted.is_empty() && effects == ok, self);
        assert!(*ok > 0, "{self}");
    }

    /// # Panics
    ///
    /// With the whole report, unless the result is the same as without kills.
    pub fn assert_clean(&self) {
        assert_no_violation(self.report.is_clean(), self);
        assert_no_violation(self.contradicted.is_empty() && self.bad_sequences.is_empty(), self);
        assert_no_violation(self.report.effects == self.report.ok, self);
        assert!(self.report.ok > 0, "{self}");
    }
}

/// The outcome of each transaction, as far as its process reported one.
fn ends(events: &[Event]) -> HashMap<MessageId, &Event> {
    let mut ends = HashMap::new();
    for event in events {
        if let Event::Ok { id } | Event::Failed { id } | Event::Unknown { id } = event {
            ends.insert(*id, event);
        }
    }
    ends
}

impl std::fmt::Display for CheckReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { contradicted, bad_sequences, unanswered, unanswered_committed, rolled_back, report, undelivered } =
            self;
        writeln!(f, "{rolled_back} rolled back; {unanswered} without an outcome, {unanswered_committed} committed")?;
        writeln!(f, "contradicted: {contradicted:?}; bad sequences: {bad_sequences:?}")?;
        write!(f, "{report}{undelivered}")
    }
}
