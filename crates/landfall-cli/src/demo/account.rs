//! The account: totals of the evidence, as a table and as JSON.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use landfall::log::Log;
use serde::Serialize;

use super::Result;
use super::check::Verdict;
use super::evidence::{Consumed, Evidence};
use super::folder::{self, Folder};
use super::shop::Shop;

/// The object that `--json` prints: part of the command's contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Account {
    pub(crate) placed: u64,
    pub(crate) published: u64,
    pub(crate) delivered: u64,
    pub(crate) effects: u64,
    pub(crate) duplicates_injected: u64,
    pub(crate) duplicates_absorbed: u64,
    pub(crate) crashes_injected: u64,
    pub(crate) parked: u64,
    pub(crate) redriven: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) out_of_order: u64,
    pub(crate) seconds: f64,
    /// One sentence for each fault.
    #[serde(skip)]
    pub(crate) findings: Vec<String>,
}

impl Account {
    /// Computes the account from the databases and the log of stopped services.
    pub(super) async fn take(folder: &Folder, shop: &Shop, started: Instant) -> Result<Self> {
        let log = Log::open_read_only(folder.path().join(folder::LOG))?;
        let evidence = Evidence::read(shop, &log).await?;
        Ok(Self::from_evidence(&evidence, folder.crashes()?, started.elapsed()))
    }

    fn from_evidence(evidence: &Evidence, crashes_injected: u64, elapsed: Duration) -> Self {
        let Verdict { lost, doubled, out_of_order, findings } = Verdict::from_evidence(evidence);
        let sum = |figure: fn(&Consumed) -> u64| evidence.consumed.iter().map(figure).sum();
        Self {
            placed: evidence.placed.len() as u64,
            published: sum(|consumed| different(consumed).len() as u64),
            delivered: sum(|consumed| consumed.inbox_rows),
            effects: sum(|consumed| consumed.effects.len() as u64),
            duplicates_injected: sum(|consumed| consumed.records.iter().filter(|record| record.is_copy).count() as u64),
            duplicates_absorbed: sum(absorbed),
            crashes_injected,
            parked: sum(|consumed| consumed.parked),
            redriven: sum(|consumed| consumed.redriven),
            lost,
            doubled,
            out_of_order,
            seconds: (elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            findings,
        }
    }

    pub(crate) fn balances(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.out_of_order == 0
    }

    /// Returns label, figure and meaning of each line, in groups.
    pub(super) fn lines(&self) -> [Vec<(&'static str, u64, &'static str)>; 3] {
        [
            vec![
                ("placed", self.placed, "orders, each committed with its message"),
                ("published", self.published, "different messages in the log"),
                ("delivered", self.delivered, "messages recorded in an inbox"),
                ("effects", self.effects, "stock reserved, customers charged, orders paid"),
            ],
            vec![
                ("crashes injected", self.crashes_injected, "times the process was killed with SIGKILL"),
                ("duplicates injected", self.duplicates_injected, "messages appended to the log twice, on purpose"),
                ("duplicates absorbed", self.duplicates_absorbed, "duplicates without effect; crashes cause some too"),
                ("parked", self.parked, "orders that no retry could help"),
                ("redriven", self.redriven, "of those, redriven after the repair"),
            ],
            vec![
                ("lost", self.lost, "effects that never happened"),
                ("doubled", self.doubled, "effects that happened twice, or without an order"),
                ("out of order", self.out_of_order, "effects that happened after a later one"),
            ],
        ]
    }

    /// Returns the result in one sentence.
    pub(crate) fn verdict(&self) -> String {
        if self.balances() {
            return "Every message landed, once.".to_owned();
        }
        let Self { lost, doubled, out_of_order, .. } = self;
        format!("The account does not balance: {lost} lost, {doubled} doubled, {out_of_order} out of order.")
    }

    /// Returns the account as a table that explains each figure.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for group in self.lines() {
            for (label, figure, meaning) in group {
                text += &format!("  {label:20}{:>8}   {meaning}\n", HumanCount(figure).to_string());
            }
            text.push('\n');
        }
        text += &format!("{}  ({:.1} s)", self.verdict(), self.seconds);
        text
    }
}

/// Returns the distinct message ids in the service's topic.
fn different(consumed: &Consumed) -> HashSet<&str> {
    consumed.records.iter().map(|record| record.message_id.as_str()).collect()
}

/// Counts records beyond the first of their id, minus those that caused another effect.
fn absorbed(consumed: &Consumed) -> u64 {
    let mut effects: HashMap<&str, u64> = HashMap::new();
    for effect in &consumed.effects {
        *effects.entry(&effect.message_id).or_default() += 1;
    }
    let not_absorbed: u64 = effects.values().map(|times| times - 1).sum();
    let copies = (consumed.records.len() - different(consumed).len()) as u64;
    copies.saturating_sub(not_absorbed)
}
