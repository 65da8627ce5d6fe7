//! The results of a soak in numbers: a table for people, JSON for programs.

use std::fmt;

use serde::Serialize;

use super::broker_kind::BrokerKind;
use super::check::SoakReport;
use super::database_kind::DatabaseKind;
use super::fault_injector::FaultCounts;
use super::order::Order;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    pub database: DatabaseKind,
    pub broker: BrokerKind,
    pub seed: u64,
    /// The order that the relays kept; without order, `out_of_order` is not a fault.
    pub order: Order,
    /// How long faults were injected.
    pub seconds: f64,
    /// From the end of all faults until all committed messages had taken effect.
    pub drained_seconds: f64,
    /// Committed messages, and effects.
    pub messages: usize,
    pub effects: usize,
    /// Messages that the daemons pushed to their receiver, and the requests that it took.
    pub pushed: usize,
    pub posts: usize,
    pub rolled_back: usize,
    #[serde(flatten)]
    pub faults: FaultCounts,
    /// Cut connections: at random, during a commit that was not forwarded, and during one that was.
    pub cuts: u64,
    pub commits_cut_before: u64,
    pub commits_cut_after: u64,
    /// Cut connections to the broker's server, requests with messages included.
    pub broker_cuts: u64,
    /// How often a shard's lease changed its holder.
    pub takeovers: i64,
    /// Messages that reached the broker more than once; `None` if it removes finished messages.
    pub copies: Option<usize>,
    /// Messages of commits with an unknown outcome, and those that the writers found committed.
    pub unknown: usize,
    pub unknown_committed: usize,
    /// Messages whose writer was killed before it could report the outcome.
    pub unanswered: usize,
    pub unanswered_committed: usize,
    /// Redriven dead letters of both sides that are done.
    pub redriven: u64,
    pub lost: usize,
    pub phantom: usize,
    pub doubled: usize,
    pub out_of_order: usize,
    /// Messages for which a writer's result contradicts the database.
    pub contradicted: usize,
    /// Epochs under which two relays settled.
    pub shared_epochs: usize,
    /// Messages that are still in the outbox or parked, or were not settled exactly once.
    pub unsettled: u64,
    /// Descriptions of all faults.
    pub wrong: Vec<String>,
}

impl Figures {
    pub fn is_clean(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Adds the results of the history check, with a description of each fault.
    pub(super) fn add(&mut self, soak_report: &SoakReport) {
        let report = &soak_report.report;
        self.messages = report.ok;
        self.rolled_back = soak_report.rolled_back;
        (self.unknown, self.unknown_committed) = (soak_report.unknown, soak_report.unknown_committed);
        (self.unanswered, self.unanswered_committed) = (soak_report.unanswered, soak_report.unanswered_committed);
        (self.lost, self.phantom, self.doubled) = (report.lost.len(), report.phantom.len(), report.doubled.len());
        self.out_of_order = report.reordered.len() + soak_report.overtaken;
        (self.contradicted, self.shared_epochs) = (soak_report.contradicted.len(), soak_report.shared_epochs.len());
        if !soak_report.is_clean() {
            self.wrong.push(report.to_string());
            self.wrong.extend(soak_report.bad_sequences.iter().map(|account| format!("bad sequence: {account}")));
            if !soak_report.contradicted.is_empty() {
                self.wrong.push(format!("contradicted: {:?}", soak_report.contradicted));
            }
            if !soak_report.shared_epochs.is_empty() {
                self.wrong.push(format!("two relays settled under one epoch: {:?}", soak_report.shared_epochs));
            }
        }
    }

    fn broker_faults_line(&self) -> String {
        let FaultCounts { broker_faults, broker_restarts, broker_pauses, broker_blackholes, .. } = self.faults;
        match self.broker {
            BrokerKind::Memory => format!("{broker_faults}"),
            _ => format!(
                "{broker_restarts} restarts, {broker_pauses} pauses, {} cuts, {broker_blackholes} blackholes",
                self.broker_cuts
            ),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultCounts { kills, relay_kills, consumer_kills, pauses, lease_pauses, restarts, .. } = self.faults;
        let ids_skipped = self.faults.ids_skipped;
        let copies = self.copies.map_or("unknown".into(), |copies| format!("{copies} published again"));
        let lines = [
            ("messages", format!("{} committed, {} took effect", self.messages, self.effects)),
            ("pushed", format!("{} in {} requests", self.pushed, self.posts)),
            ("rolled back", format!("{}", self.rolled_back)),
            ("kills", format!("{kills} ({relay_kills} relays, {consumer_kills} consumers)")),
            ("pauses", format!("{pauses} ({lease_pauses} relays past their lease)")),
            ("server restarts", format!("{restarts}")),
            (
                "cuts",
                format!(
                    "{} at random, {} before a commit was forwarded, {} after",
                    self.cuts, self.commits_cut_before, self.commits_cut_after
                ),
            ),
            ("broker faults", self.broker_faults_line()),
            ("ids skipped", format!("{ids_skipped}")),
            ("takeovers", format!("{}", self.takeovers)),
            ("copies", copies),
            (
                "unknown commits",
                format!(
                    "{} messages: {} found committed, {} not committed and repeated",
                    self.unknown,
                    self.unknown_committed,
                    self.unknown - self.unknown_committed.min(self.unknown)
                ),
            ),
            (
                "unanswered commits",
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
                    Order::None => format!("{}, allowed by this order", self.out_of_order),
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
        let Self { database, broker, order, seed, seconds, .. } = self;
        writeln!(f, "soak on {database} over {broker}, order {order}, seed {seed}, {seconds:.0} s of faults")?;
        for (name, value) in lines {
            writeln!(f, "  {name:<20} {value}")?;
        }
        for wrong in &self.wrong {
            writeln!(f, "WRONG: {wrong}")?;
        }
        Ok(())
    }
}
