//! Crashes at every point of generated work.

use std::sync::atomic::Ordering;

use landfall_log::Options;
use landfall_testkit::VIOLATION;

use crate::change::{COMPACTED, REMOVED};
use crate::disk::ModelDisk;
use crate::explore::{Effort, Explorer};
use crate::random::{Random, seed};
use crate::shared_failpoints;
use crate::tree::Tree;
use crate::workload::{History, options, work, work_on};

/// Images checked in total, by workers that process one run after the other.
const IMAGES: usize = 10_000;
const WORKERS: u64 = 2;
const STEPS: usize = 25;
const PREALLOCATION_RUNS: u64 = 3;
const EFFORT: Effort =
    Effort { images_per_crash_point: 2, exhaustive_tears: 1, continued_percent: 15, crashed_again_percent: 6 };

/// Explores runs until this worker has checked its share. Returns the number of distinct images.
fn explore(worker: u64) -> usize {
    let mut images = 0;
    for run in (worker..).step_by(WORKERS as usize) {
        if images >= IMAGES / WORKERS as usize {
            break;
        }
        let context =
            |failure: String| -> usize { panic!("{VIOLATION} LANDFALL_SEED={}, run {run}: {failure}", seed()) };
        images += explore_run(run).unwrap_or_else(context);
    }
    images
}

fn explore_run(run: u64) -> Result<usize, String> {
    let mut explorer = Explorer::new(Random::for_part(seed(), run));
    let finished = explorer.runtime().block_on(work(Random::for_part(seed(), !run).next(), STEPS, None))?;
    explorer.explore(&finished.history, EFFORT)?;
    Ok(explorer.images())
}

#[test]
fn crash_keeps_acknowledged_messages_and_invents_none() {
    let _shared = shared_failpoints();
    let images: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || explore(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    });
    assert!(images >= IMAGES, "{images} images are fewer than {IMAGES}");
    let (removed, compacted) = (REMOVED.load(Ordering::Relaxed), COMPACTED.load(Ordering::Relaxed));
    assert!(removed > 100 && compacted > 100, "only {removed} messages were removed, and {compacted} compacted");
}

/// The same on a disk with preallocation in the background, concurrently with later calls. Small steps ensure that
/// there is always some to do.
#[test]
fn crash_during_preallocation_loses_nothing() {
    let _shared = shared_failpoints();
    let mut images = 0;
    for run in 0..PREALLOCATION_RUNS {
        let mut explorer = Explorer::new(Random::for_part(seed(), run));
        let mut random = Random::for_part(seed(), !run);
        let options = Options { preallocate_bytes: 1000, ..options(&mut random) };
        let disk = ModelDisk::new(Tree::default()).working_ahead();
        let context = |failure: String| panic!("{VIOLATION} LANDFALL_SEED={}, run {run}: {failure}", seed());
        let finished = explorer.runtime().block_on(work_on(disk, random, options, STEPS)).map_err(String::from);
        finished.and_then(|finished| explorer.explore(&finished.history, EFFORT)).unwrap_or_else(context);
        images += explorer.images();
    }
    assert!(images > 500, "only {images} images");
}

#[test]
fn same_seed_produces_the_same_journal() {
    let _shared = shared_failpoints();
    let outline = |history: &History| -> Vec<String> {
        // The thread that saves group progress depends on the clock, so its entries may move.
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
