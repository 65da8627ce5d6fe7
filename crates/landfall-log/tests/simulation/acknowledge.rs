//! Publishers that do not wait for the disk: a crash may take what was not synced, from the end, and nothing else.

use landfall_log::{Acknowledge, Flush, Options};

use crate::explore::{Effort, Explorer};
use crate::random::{Random, seed};
use crate::shared_failpoints;
use crate::workload::{options, work_with};

const IMAGES: usize = 1200;
const STEPS: usize = 25;
const EFFORT: Effort = Effort { images_per_moment: 2, torn_at_every_byte: 0, gone_on_with: 20, crashed_again: 2 };

fn explore_run(run: u64, acknowledge: Acknowledge) -> Result<usize, String> {
    let mut explorer = Explorer::new(Random::of(seed(), run));
    let mut random = Random::of(seed(), !run);
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
        let told = |verdict: String| -> usize { panic!("LANDFALL_SEED={}, run {run}: {verdict}", seed()) };
        images += explore_run(run, acknowledge).unwrap_or_else(told);
        run += 1;
    }
}

#[test]
fn what_was_only_written_is_lost_from_the_end_or_not_at_all() {
    explore(Acknowledge::Written);
}

#[test]
fn what_was_only_taken_is_lost_from_the_end_or_not_at_all() {
    explore(Acknowledge::None);
}
