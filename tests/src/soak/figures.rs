//! What a soak came to, in numbers: a table for people, JSON for programs.

use std::fmt;

use serde::Serialize;

use super::judge::Judgement;
use super::order::Order;
use super::run::DatabaseKind;
use super::trouble::Blows;

#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    pub database: DatabaseKind,
    pub seed: u64,
    /// What the relays kept in order; without any, `out_of_order` is a figure like others and no fault.
    pub order: Order,
    /// How long there was trouble.
    pub seconds: f64,
    /// From the end of all trouble until everything that was committed had taken effect.
    pub drained_seconds: f64,
    /// Committed messages, and how many took effect.
    pub messages: usize,
    pub effects: usize,
    pub rolled_back: usize,
    #[serde(flatten)]
    pub blows: Blows,
    /// Connections that were cut: at any moment, with a commit that was not forwarded, with one that was.
    pub cuts: u64,
    pub commits_cut_before: u64,
    pub commits_cut_after: u64,
    /// Times a shard's lease changed hands.
    pub takeovers: i64,
    /// Messages that reached the broker more than once.
    pub copies: usize,
    /// Messages under a commit that broke off, as their writers found them when they looked.
    pub unknown: usize,
    pub unknown_committed: usize,
    /// Messages whose writer was killed before it could tell.
    pub unanswered: usize,
    pub unanswered_committed: usize,
    /// Dead letters of both sides that were redriven and are done.
    pub redriven: u64,
    pub lost: usize,
    pub phantom: usize,
    pub doubled: usize,
    pub out_of_order: usize,
    /// Writers were told something else than the database says.
    pub contradicted: usize,
    /// Epochs under which two relays settled.
    pub shared_epochs: usize,
    /// Messages that are still in the outbox or parked, or were settled not exactly once.
    pub unsettled: u64,
    /// Everything that is wrong, in words.
    pub wrong: Vec<String>,
}

impl Figures {
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Takes the verdict over, each fault in a few words.
    pub(super) fn take(&mut self, judgement: &Judgement) {
        let report = &judgement.report;
        (self.messages, self.effects) = (report.ok, report.effects);
        self.rolled_back = judgement.rolled_back;
        (self.unknown, self.unknown_committed) = (judgement.unknown, judgement.unknown_committed);
        (self.unanswered, self.unanswered_committed) = (judgement.unanswered, judgement.unanswered_committed);
        (self.lost, self.phantom, self.doubled) = (report.lost.len(), report.phantom.len(), report.doubled.len());
        self.out_of_order = report.reordered.len() + judgement.overtaken;
        (self.contradicted, self.shared_epochs) = (judgement.contradicted.len(), judgement.shared_epochs.len());
        if !judgement.is_clean() {
            self.wrong.push(report.to_string());
            self.wrong.extend(judgement.uneven.iter().map(|account| format!("uneven: {account}")));
            if !judgement.contradicted.is_empty() {
                self.wrong.push(format!("contradicted: {:?}", judgement.contradicted));
            }
            if !judgement.shared_epochs.is_empty() {
                self.wrong.push(format!("two relays settled under one epoch: {:?}", judgement.shared_epochs));
            }
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blows { kills, relay_kills, pauses, lease_pauses, restarts, broker_faults, ids_skipped } = self.blows;
        let lines = [
            ("messages", format!("{} committed, {} took effect", self.messages, self.effects)),
            ("rolled back", format!("{}", self.rolled_back)),
            ("kills", format!("{kills} ({relay_kills} relays)")),
            ("pauses", format!("{pauses} ({lease_pauses} relays past their lease)")),
            ("server restarts", format!("{restarts}")),
            (
                "cuts",
                format!(
                    "{} at any moment, {} under a commit before it, {} after it",
                    self.cuts, self.commits_cut_before, self.commits_cut_after
                ),
            ),
            ("broker faults", format!("{broker_faults}")),
            ("ids skipped", format!("{ids_skipped}")),
            ("take-overs", format!("{}", self.takeovers)),
            ("copies", format!("{} reached the broker again", self.copies)),
            (
                "unknown commits",
                format!(
                    "{} messages: {} found committed, {} not and done again",
                    self.unknown,
                    self.unknown_committed,
                    self.unknown - self.unknown_committed.min(self.unknown)
                ),
            ),
            (
                "died before telling",
                format!("{} messages, {} of them committed", self.unanswered, self.unanswered_committed),
            ),
            ("redriven", format!("{}", self.redriven)),
            ("drained within", format!("{:.1} s", self.drained_seconds)),
            ("lost", format!("{}", self.lost)),
            ("phantom", format!("{}", self.phantom)),
            ("doubled", format!("{}", self.doubled)),
            (
                "out of order",
                match self.order {
                    Order::Key => format!("{}", self.out_of_order),
                    Order::None => format!("{}, as this order allows", self.out_of_order),
                },
            ),
            (
                "other faults",
                format!(
                    "{} contradicted, {} shared epochs, {} unsettled",
                    self.contradicted, self.shared_epochs, self.unsettled
                ),
            ),
        ];
        let Self { database, order, seed, seconds, .. } = self;
        writeln!(f, "soak on {database}, order {order}, seed {seed}, {seconds:.0} s of trouble")?;
        for (name, value) in lines {
            writeln!(f, "  {name:<20} {value}")?;
        }
        for wrong in &self.wrong {
            writeln!(f, "WRONG: {wrong}")?;
        }
        Ok(())
    }
}
