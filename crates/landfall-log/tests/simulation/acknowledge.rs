//! Acknowledgement before the sync: a crash may lose unsynced messages at the end of a partition, and nothing else.

use landfall_log::{Acknowledge, Flush, Options};
use landfall_testkit::VIOLATION;

use crate::explore::{Effort, Explorer};
use crate::random::{Random, seed};
use crate::shared_failpoints;
use crate::workload::{options, work_with};

const IMAGES: usize = 1200;
const STEPS: usize = 25;
const EFFORT: Effort =
    Effort { images_per_crash_point: 2, exhaustive_tears: 0, continued_percent: 20, crashed_again_percent: 2 };

fn explore_run(run: u64, acknowledge: Acknowledge) -> Result<usize, String> {
    let mut explorer = Explorer::new(Random::for_part(seed(), run));
    let mut random = Random::for_part(seed(), !run);
    let flush = [Flush::EveryMessages(4), Flush::EveryMessages(1000)][random.below(2)];
    let options = Options { acknowledge, flush, ..options(&mut random) };
    let finished = explorer.runtime().block_on(work_with(random, options, STEPS, None))?;
    explorer.explore(&finished.history, EFFORT)?;
    Ok(explorer.images())
}

fn explore(acknowledge: Acknowledge) {
    let _shared = shared_failpoints();
    let (mut images, mut run) = (0, 2000);
    while images < IMAGES {
        let context =
            |failure: String| -> usize { panic!("{VIOLATION} LANDFALL_SEED={}, run {run}: {failure}", seed()) };
        images += explore_run(run, acknowledge).unwrap_or_else(context);
        run += 1;
    }
}

#[test]
fn crash_loses_written_messages_only_from_the_end() {
    explore(Acknowledge::Written);
}

#[test]
fn crash_loses_unwritten_messages_only_from_the_end() {
    explore(Acknowledge::None);
}
