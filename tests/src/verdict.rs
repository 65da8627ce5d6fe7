//! What became of a world: its history and its tables, judged by the testkit's history checker.
//!
//! The truth is what is committed in `orders`. A transaction whose process died before it could tell is there or not,
//! and is judged accordingly: there, its message must have had its effect; not there, it must not.

use std::collections::{BTreeMap, HashMap};

use landfall::{Key, MessageId};
use landfall_testkit::history::{History, Report, check};

use crate::books::Order;
use crate::history::Event;
use crate::remains::Remains;
use crate::setup::GROUP;

#[derive(Debug)]
pub struct Verdict {
    /// Lost, doubled, phantom, reordered.
    pub report: Report,
    /// What a writer was told and the database does not confirm: a commit that is gone, a rollback that is there.
    pub contradicted: Vec<MessageId>,
    /// Keys whose effects are not exactly 1, 2, 3… in this order.
    pub uneven: Vec<String>,
    /// Transactions that nobody could tell the end of, and how many of them were committed.
    pub unanswered: usize,
    pub unanswered_committed: usize,
    /// Transactions that were rolled back.
    pub rolled_back: usize,
    /// Where messages without effect stand.
    pub remains: Remains,
}

impl Verdict {
    pub fn new(events: &[Event], orders: &[Order], effects: &[Order], remains: Remains) -> Self {
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
        let mut verdict = Self {
            report: Report::default(),
            contradicted,
            uneven: uneven(effects),
            unanswered: 0,
            unanswered_committed: 0,
            rolled_back: ends.values().filter(|end| matches!(end, Event::Failed { .. })).count(),
            remains,
        };
        // When those without an answer ended is not known either, so they are told last: that orders them by their
        // number alone.
        for event in events {
            let Event::Invoke { id, .. } = event else { continue };
            if matches!(ends.get(id), None | Some(Event::Unknown { .. })) {
                verdict.unanswered += 1;
                if committed.contains_key(id) {
                    verdict.unanswered_committed += 1;
                    history.ok(*id);
                } else {
                    history.failed(*id);
                }
            }
        }
        for effect in effects {
            history.effect(GROUP, effect.message_id, Key::new(&effect.key).ok());
        }
        verdict.report = check(&history);
        verdict
    }

    /// # Panics
    ///
    /// With the whole account, unless everything is as if nobody had died and nobody had asked for an order.
    pub fn assert_nothing_but_the_order_is_wrong(&self) {
        let Report { lost, phantom, doubled, ok, effects, .. } = &self.report;
        assert!(lost.is_empty() && phantom.is_empty() && doubled.is_empty(), "{self}");
        assert!(self.contradicted.is_empty() && *ok > 0 && effects == ok, "{self}");
    }

    /// # Panics
    ///
    /// With the whole account, unless everything is as if nobody had died.
    pub fn assert_nothing_is_wrong(&self) {
        assert!(self.report.is_clean(), "{self}");
        assert!(self.contradicted.is_empty() && self.uneven.is_empty(), "{self}");
        assert!(self.report.ok > 0 && self.report.effects == self.report.ok, "{self}");
    }
}

/// How each transaction ended, as far as its process could tell.
fn ends(events: &[Event]) -> HashMap<MessageId, &Event> {
    let mut ends = HashMap::new();
    for event in events {
        if let Event::Ok { id } | Event::Failed { id } | Event::Unknown { id } = event {
            ends.insert(*id, event);
        }
    }
    ends
}

fn uneven(effects: &[Order]) -> Vec<String> {
    let mut sequences: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for effect in effects {
        sequences.entry(&effect.key).or_default().push(effect.sequence);
    }
    let uneven = sequences.into_iter().filter(|(_, found)| !found.iter().copied().eq(1..=found.len() as i64));
    uneven.map(|(key, found)| format!("{key}: {found:?}")).collect()
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { contradicted, uneven, unanswered, unanswered_committed, rolled_back, report, remains } = self;
        writeln!(f, "{rolled_back} rolled back; {unanswered} without an answer, {unanswered_committed} committed")?;
        writeln!(f, "contradicted: {contradicted:?}; uneven: {uneven:?}")?;
        write!(f, "{report}{remains}")
    }
}
