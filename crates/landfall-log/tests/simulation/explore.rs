//! Goes through a journal and checks the images that a crash at each of its moments could leave.

use std::collections::HashSet;

use landfall_core::Outcome;
use landfall_log::Options;
use tokio::runtime::Runtime;

use crate::crash::{Crash, Fate};
use crate::disk::ModelDisk;
use crate::journal::{Entry, Operation};
use crate::marks::{Answer, Mark};
use crate::random::Random;
use crate::reference::Reference;
use crate::runtime;
use crate::session::{Session, Verdict};
use crate::tree::Tree;
use crate::workload::History;

/// How many images are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// At each moment of the journal, beside the one that kept everything and the one that kept nothing.
    pub(crate) images_per_moment: usize,
    /// At so many of the last moments before a sync, also every byte at which a write could be torn.
    pub(crate) torn_at_every_byte: usize,
    /// So many percent of the images are not only looked at: the log goes on with them.
    pub(crate) gone_on_with: usize,
    /// So many percent of those are crashed again while they do.
    pub(crate) crashed_again: usize,
}

#[derive(Debug)]
pub(crate) struct Explorer {
    runtime: Runtime,
    random: Random,
    /// Images that were checked already, each with how much was promised then.
    known: HashSet<(u64, usize)>,
}

/// A moment of a journal: what happened before it is past, the rest never comes.
#[derive(Debug)]
pub(crate) struct Moment {
    pub(crate) crash: Crash,
    pub(crate) reference: Reference,
    /// How many entries of the journal have happened, and how many of those were marks.
    position: usize,
    marks: usize,
}

impl Moment {
    pub(crate) fn first(history: &History) -> Self {
        let (crash, reference) = (Crash::new(history.base.clone()), history.before.clone());
        Self { crash, reference, position: 0, marks: 0 }
    }

    /// The moment after the next entry; `false` at the end.
    pub(crate) fn advance(&mut self, history: &History) -> Result<bool, String> {
        let Some(entry) = history.journal.get(self.position) else { return Ok(false) };
        self.position += 1;
        match entry {
            Entry::Done { operation, .. } => self.crash.follow(operation),
            Entry::Told(mark) => {
                self.marks += 1;
                self.reference.follow(mark, answer(&history.journal[self.position..]))?;
            }
        }
        Ok(true)
    }
}

/// What is going to be answered to the call that has just begun.
fn answer(rest: &[Entry]) -> Option<&[Outcome]> {
    let answer = rest.iter().find_map(|entry| match entry {
        Entry::Told(Mark::Answered(answer)) => Some(answer),
        _ => None,
    });
    match answer {
        Some(Answer::Outcomes(outcomes)) => Some(outcomes),
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

    /// How many different images were checked.
    pub(crate) fn images(&self) -> usize {
        self.known.len()
    }

    /// Checks images of every moment of `history`; the first broken promise is told with everything that is needed to
    /// see it again.
    pub(crate) fn explore(&mut self, history: &History, effort: Effort) -> Result<(), String> {
        let syncs: Vec<usize> =
            (0..history.journal.len()).filter(|at| is_sync_of_messages(&history.journal[*at])).collect();
        let exhaustive = &syncs[syncs.len().saturating_sub(effort.torn_at_every_byte)..];
        let mut moment = Moment::first(history);
        loop {
            let mut choices = vec![Vec::new(), vec![Fate::Dropped; moment.crash.open().len()]];
            choices.extend((0..effort.images_per_moment).map(|_| moment.crash.any_fates(&mut self.random)));
            if exhaustive.contains(&moment.position) {
                choices.extend(moment.crash.every_tear());
            }
            for fates in choices {
                self.check(history, &moment, &fates, effort)?;
            }
            if !moment.advance(history)? {
                return Ok(());
            }
        }
    }

    fn check(&mut self, history: &History, moment: &Moment, fates: &[Fate], effort: Effort) -> Result<(), String> {
        let image = moment.crash.image(fates);
        if !self.known.insert((image.fingerprint(), moment.marks)) {
            return Ok(());
        }
        let told = |verdict: String| {
            let before = history.journal[..moment.position].last().map(Entry::outline).unwrap_or_default();
            let (position, open) = (moment.position, moment.crash.outline());
            format!("{verdict}\n  after a crash at entry {position} ({before}) that left {fates:?} of {open:?}")
        };
        let (reference, options) = (moment.reference.clone(), history.options);
        if !self.random.chance(effort.gone_on_with) {
            let looked_at = self.runtime.block_on(look(image, reference, options));
            return looked_at.map_err(|verdict| told(verdict.into()));
        }
        let checked = self.runtime.block_on(check(image, reference, options));
        let again = checked.map_err(|verdict| told(verdict.into()))?;
        if self.random.chance(effort.crashed_again) {
            let once = Effort { images_per_moment: 1, torn_at_every_byte: 0, crashed_again: 0, ..effort };
            self.explore(&again, once).map_err(told)?;
        }
        Ok(())
    }
}

/// Opens the log on `image` and compares it with the reference.
async fn look(image: Tree, reference: Reference, options: Options) -> Result<(), Verdict> {
    Session::open(ModelDisk::new(image), reference, options).await?.close().await.map(drop)
}

/// Opens the log on `image`, compares it with the reference and goes on with it; answers with what that did.
pub(crate) async fn check(image: Tree, reference: Reference, options: Options) -> Result<History, Verdict> {
    let disk = ModelDisk::new(image.clone());
    let session = Session::open(disk.clone(), reference.clone(), options).await?;
    session.goes_on().await?;
    Ok(History { base: image, before: reference, journal: disk.take_journal(), options })
}

fn is_sync_of_messages(entry: &Entry) -> bool {
    matches!(entry, Entry::Done { operation: Operation::Sync { .. }, .. }) && entry.is_below("/log/topics")
}
