//! Crashes at every moment of generated work.

use crate::explore::{Effort, Explorer};
use crate::random::{Random, seed};
use crate::workload::{History, work};

/// What this test promises to look at.
const IMAGES: usize = 10_000;
const RUNS: u64 = 8;
const STEPS: usize = 25;
const EFFORT: Effort = Effort { images_per_moment: 2, torn_at_every_byte: 2, crashed_again: 2 };

/// Explores the runs with these numbers; answers with how many different images that were.
fn explore(runs: impl Iterator<Item = u64>) -> usize {
    let mut images = 0;
    for run in runs {
        let start = std::time::Instant::now();
        let mut explorer = Explorer::new(Random::of(seed(), run));
        let finished = explorer.runtime().block_on(work(Random::of(seed(), !run).next(), STEPS, None));
        let finished = finished.map_err(String::from).unwrap_or_else(|verdict| panic!("{}: {verdict}", named(run)));
        explorer.explore(&finished.history, EFFORT).unwrap_or_else(|verdict| panic!("{}: {verdict}", named(run)));
        images += explorer.images();
        eprintln!("run {run}: {} images, journal {}, {:?}", explorer.images(), finished.history.journal.len(), start.elapsed());
    }
    images
}

fn named(run: u64) -> String {
    format!("LANDFALL_SEED={}, run {run}", seed())
}

#[test]
fn no_crash_loses_what_was_acknowledged_or_shows_what_never_was() {
    let images: usize = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..2).map(|worker| scope.spawn(move || explore((0..RUNS).filter(|run| run % 2 == worker)))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).sum()
    });
    assert!(images >= IMAGES, "{images} images are fewer than {IMAGES}");
}

#[test]
fn the_same_seed_does_the_same() {
    let outline = |history: &History| -> Vec<String> {
        // The thread that saves the groups' progress goes by the clock, so what it does may come a moment later.
        let entries = history.journal.iter().filter(|entry| !entry.is_below("/log/groups"));
        entries.map(|entry| entry.outline()).collect()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = || runtime.block_on(work(seed(), 60, None)).map_err(String::from).unwrap();
    assert_eq!(outline(&run().history), outline(&run().history), "LANDFALL_SEED={}", seed());
}
