//! The account: the sum of the evidence, for people and for programs.

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

/// What `--json` prints, field by field.
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
    /// What exactly is wrong, if anything is.
    #[serde(skip)]
    pub(crate) findings: Vec<String>,
}

impl Account {
    /// Takes the account of a world at rest, from its databases and its log alone.
    pub(super) async fn take(folder: &Folder, shop: &Shop, started: Instant) -> Result<Self> {
        let log = Log::open_read_only(folder.path().join(folder::LOG))?;
        let evidence = Evidence::read(shop, &log).await?;
        Ok(Self::of(&evidence, folder.crashes()?, started.elapsed()))
    }

    fn of(evidence: &Evidence, crashes_injected: u64, elapsed: Duration) -> Self {
        let Verdict { lost, doubled, out_of_order, findings } = Verdict::on(evidence);
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

    /// Label, figure and what it means, in groups.
    pub(super) fn lines(&self) -> [Vec<(&'static str, u64, &'static str)>; 3] {
        [
            vec![
                ("placed", self.placed, "orders, each committed with its message"),
                ("published", self.published, "different messages in the log"),
                ("delivered", self.delivered, "messages that a service took charge of"),
                ("effects", self.effects, "stock reserved, customers charged, orders paid"),
            ],
            vec![
                ("crashes injected", self.crashes_injected, "times the process was killed with SIGKILL"),
                ("duplicates injected", self.duplicates_injected, "messages put into the log twice, on purpose"),
                ("duplicates absorbed", self.duplicates_absorbed, "copies without effect; crashes made some too"),
                ("parked", self.parked, "orders set aside because no retry could help"),
                ("redriven", self.redriven, "of those, sent on after the repair"),
            ],
            vec![
                ("lost", self.lost, "effects that never happened"),
                ("doubled", self.doubled, "effects that happened twice, or out of nothing"),
                ("out of order", self.out_of_order, "effects that came after a later one"),
            ],
        ]
    }

    /// What it all comes to.
    pub(crate) fn verdict(&self) -> String {
        if self.balances() {
            return "Every message landed, once.".to_owned();
        }
        let Self { lost, doubled, out_of_order, .. } = self;
        format!("The account does not balance: {lost} lost, {doubled} doubled, {out_of_order} out of order.")
    }

    /// The account as a table, for somebody who never saw this project.
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

/// The ids in the topic a service listens to.
fn different(consumed: &Consumed) -> HashSet<&str> {
    consumed.records.iter().map(|record| record.message_id.as_str()).collect()
}

/// Records beyond the first of their id, as far as the service that read them applied that id once.
fn absorbed(consumed: &Consumed) -> u64 {
    let mut effects: HashMap<&str, u64> = HashMap::new();
    for effect in &consumed.effects {
        *effects.entry(&effect.message_id).or_default() += 1;
    }
    let not_absorbed: u64 = effects.values().map(|times| times - 1).sum();
    let copies = (consumed.records.len() - different(consumed).len()) as u64;
    copies.saturating_sub(not_absorbed)
}
