//! Crashes at every moment of generated work.

use std::sync::atomic::Ordering;

use landfall_log::Options;

use crate::change::{COMPACTED, REMOVED};
use crate::disk::ModelDisk;
use crate::explore::{Effort, Explorer};
use crate::random::{Random, seed};
use crate::shared_failpoints;
use crate::tree::Tree;
use crate::workload::{History, options, work, work_on};

/// What is looked at together, by workers that each take one run after the other.
const IMAGES: usize = 10_000;
const WORKERS: u64 = 2;
const STEPS: usize = 25;
const RUNS_AHEAD: u64 = 3;
const EFFORT: Effort = Effort { images_per_moment: 2, torn_at_every_byte: 1, gone_on_with: 15, crashed_again: 6 };

/// Explores every run of one worker until it has done its share; answers with how many different images that were.
fn explore(worker: u64) -> usize {
    let mut images = 0;
    for run in (worker..).step_by(WORKERS as usize) {
        if images >= IMAGES / WORKERS as usize {
            break;
        }
        let told = |verdict: String| -> usize { panic!("LANDFALL_SEED={}, run {run}: {verdict}", seed()) };
        images += explore_run(run).unwrap_or_else(told);
    }
    images
}

fn explore_run(run: u64) -> Result<usize, String> {
    let mut explorer = Explorer::new(Random::of(seed(), run));
    let finished = explorer.runtime().block_on(work(Random::of(seed(), !run).next(), STEPS, None))?;
    explorer.explore(&finished.history, EFFORT)?;
    Ok(explorer.images())
}

#[test]
fn no_crash_loses_what_was_acknowledged_or_shows_what_never_was() {
    let _shared = shared_failpoints();
    let images: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || explore(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    });
    assert!(images >= IMAGES, "{images} images are fewer than {IMAGES}");
    let (removed, compacted) = (REMOVED.load(Ordering::Relaxed), COMPACTED.load(Ordering::Relaxed));
    assert!(removed > 100 && compacted > 100, "only {removed} messages were removed, and {compacted} compacted");
}

/// The same on a disk on which room is made ahead of the next batch, beside whatever the caller does next. Small steps, so
/// that there is always some to make.
#[test]
fn no_crash_loses_anything_while_room_is_made_ahead() {
    let _shared = shared_failpoints();
    let mut images = 0;
    for run in 0..RUNS_AHEAD {
        let mut explorer = Explorer::new(Random::of(seed(), run));
        let mut random = Random::of(seed(), !run);
        let options = Options { preallocate_bytes: 1000, ..options(&mut random) };
        let disk = ModelDisk::new(Tree::default()).working_ahead();
        let told = |verdict: String| panic!("LANDFALL_SEED={}, run {run}: {verdict}", seed());
        let finished = explorer.runtime().block_on(work_on(disk, random, options, STEPS)).map_err(String::from);
        finished.and_then(|finished| explorer.explore(&finished.history, EFFORT)).unwrap_or_else(told);
        images += explorer.images();
    }
    assert!(images > 500, "only {images} images");
}

#[test]
fn the_same_seed_does_the_same() {
    let _shared = shared_failpoints();
    let outline = |history: &History| -> Vec<String> {
        // The thread that saves the groups' progress goes by the clock, so what it does may come a moment later.
        let entries = history.journal.iter().filter(|entry| !entry.is_below("/log/groups"));
        entries.map(|entry| entry.outline()).collect()
    };
    let runtime = crate::runtime();
    let run = || runtime.block_on(work(seed(), 60, None)).map_err(String::from).unwrap();
    let (first, second) = (outline(&run().history), outline(&run().history));
    for (at, (first, second)) in first.iter().zip(&second).enumerate() {
        assert_eq!(first, second, "LANDFALL_SEED={}: entry {at}", seed());
    }
    assert_eq!(first.len(), second.len(), "LANDFALL_SEED={}", seed());
}
