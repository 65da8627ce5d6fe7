//! Replays a journal and checks the images that a crash at each of its points can leave.

use std::collections::HashSet;

use landfall_core::Outcome;
use landfall_log::Options;
use tokio::runtime::Runtime;

use crate::crash::{Crash, Survival};
use crate::disk::ModelDisk;
use crate::events::{CallResult, Event};
use crate::journal::{Entry, Operation};
use crate::random::Random;
use crate::reference::Reference;
use crate::runtime;
use crate::session::{Failure, Session};
use crate::tree::Tree;
use crate::workload::History;

/// The number of images to check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Random images at each crash point, in addition to the one with all unsynced changes and the one with none.
    pub(crate) images_per_crash_point: usize,
    /// Before this many of the last syncs, also tears writes at every byte.
    pub(crate) exhaustive_tears: usize,
    /// Percentage of the images on which the log also continues to work.
    pub(crate) continued_percent: usize,
    /// Percentage of those that are crashed again meanwhile.
    pub(crate) crashed_again_percent: usize,
}

#[derive(Debug)]
pub(crate) struct Explorer {
    runtime: Runtime,
    random: Random,
    /// Images that were checked before, each with the number of events up to its crash point.
    known: HashSet<(u64, usize)>,
}

/// A point of a journal: entries before it have happened, later ones have not.
#[derive(Debug)]
pub(crate) struct CrashPoint {
    pub(crate) crash: Crash,
    pub(crate) reference: Reference,
    /// The number of entries that have happened, and how many of them are events.
    position: usize,
    events: usize,
}

impl CrashPoint {
    pub(crate) fn first(history: &History) -> Self {
        let (crash, reference) = (Crash::new(history.base.clone()), history.before.clone());
        Self { crash, reference, position: 0, events: 0 }
    }

    /// Moves to the point after the next entry; `false` at the end.
    pub(crate) fn advance(&mut self, history: &History) -> Result<bool, String> {
        let Some(entry) = history.journal.get(self.position) else { return Ok(false) };
        self.position += 1;
        match entry {
            Entry::Operation { operation, .. } => self.crash.apply(operation),
            Entry::Event(event) => {
                self.events += 1;
                self.reference.apply(event, outcomes(&history.journal[self.position..]))?;
            }
        }
        Ok(true)
    }
}

/// The outcomes that the call that has just started will return.
fn outcomes(rest: &[Entry]) -> Option<&[Outcome]> {
    let result = rest.iter().find_map(|entry| match entry {
        Entry::Event(Event::CallReturned(result)) => Some(result),
        _ => None,
    });
    match result {
        Some(CallResult::Outcomes(outcomes)) => Some(outcomes),
        _ => None,
    }
}

impl Explorer {
    pub(crate) fn new(random: Random) -> Self {
        Self { runtime: runtime(), random, known: HashSet::new() }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The number of distinct images checked.
    pub(crate) fn images(&self) -> usize {
        self.known.len()
    }

    /// Checks images of every point of `history`. The error of the first violation has everything needed to reproduce
    /// it.
    pub(crate) fn explore(&mut self, history: &History, effort: Effort) -> Result<(), String> {
        let syncs: Vec<usize> =
            (0..history.journal.len()).filter(|at| is_sync_of_messages(&history.journal[*at])).collect();
        let exhaustive = &syncs[syncs.len().saturating_sub(effort.exhaustive_tears)..];
        let mut crash_point = CrashPoint::first(history);
        loop {
            let mut choices = vec![Vec::new(), vec![Survival::Dropped; crash_point.crash.unsynced().len()]];
            choices.extend(
                (0..effort.images_per_crash_point).map(|_| crash_point.crash.random_survivals(&mut self.random)),
            );
            if exhaustive.contains(&crash_point.position) {
                choices.extend(crash_point.crash.every_tear());
            }
            for survivals in choices {
                self.check(history, &crash_point, &survivals, effort)?;
            }
            if !crash_point.advance(history)? {
                return Ok(());
            }
        }
    }

    fn check(
        &mut self,
        history: &History,
        crash_point: &CrashPoint,
        survivals: &[Survival],
        effort: Effort,
    ) -> Result<(), String> {
        let image = crash_point.crash.image(survivals);
        if !self.known.insert((image.fingerprint(), crash_point.events)) {
            return Ok(());
        }
        let context = |failure: String| {
            let before = history.journal[..crash_point.position].last().map(Entry::outline).unwrap_or_default();
            let (position, unsynced) = (crash_point.position, crash_point.crash.outline());
            format!("{failure}\n  after a crash at entry {position} ({before}) that left {survivals:?} of {unsynced:?}")
        };
        let (reference, options) = (crash_point.reference.clone(), history.options);
        if !self.random.chance(effort.continued_percent) {
            let opened = self.runtime.block_on(open_and_compare(image, reference, options));
            return opened.map_err(|failure| context(failure.into()));
        }
        let checked = self.runtime.block_on(check(image, reference, options));
        let again = checked.map_err(|failure| context(failure.into()))?;
        if self.random.chance(effort.crashed_again_percent) {
            let once = Effort { images_per_crash_point: 1, exhaustive_tears: 0, crashed_again_percent: 0, ..effort };
            self.explore(&again, once).map_err(context)?;
        }
        Ok(())
    }
}

/// Opens the log on `image` and compares it with the reference.
async fn open_and_compare(image: Tree, reference: Reference, options: Options) -> Result<(), Failure> {
    Session::open(ModelDisk::new(image), reference, options).await?.close().await.map(drop)
}

/// Opens the log on `image`, compares it with the reference and continues to work with it. Returns the new history.
pub(crate) async fn check(image: Tree, reference: Reference, options: Options) -> Result<History, Failure> {
    let disk = ModelDisk::new(image.clone());
    let session = Session::open(disk.clone(), reference.clone(), options).await?;
    session.check_usable().await?;
    Ok(History { base: image, before: reference, journal: disk.take_journal(), options })
}

fn is_sync_of_messages(entry: &Entry) -> bool {
    matches!(entry, Entry::Operation { operation: Operation::Sync { .. }, .. }) && entry.is_below("/log/topics")
}
