//! Planted bugs: each must be seen by the checks, or the checks prove nothing.

use crate::disk::Lie;
use crate::explore::{Effort, Explorer};
use crate::random::Random;
use crate::workload::work;
use crate::{damage, only_failpoints, runtime, shared_failpoints, tail, visibility};

/// The same work every time: whether a planted bug shows is a property of the checks, not of luck.
const SEED: u64 = 1;
/// A bug that so many runs do not show would be a bug of the checks.
const RUNS: u64 = 100;
const EFFORT: Effort = Effort { images_per_moment: 2, torn_at_every_byte: 0, gone_on_with: 100, crashed_again: 0 };

fn assert_caught(bug: &str, run: impl Fn(u64) -> Result<(), String>) {
    assert!((0..RUNS).any(|number| run(number).is_err()), "{bug} was not noticed");
}

fn explore_on_a_disk_that_lies(run: u64, lie: Lie) -> Result<(), String> {
    let mut explorer = Explorer::new(Random::of(SEED, run));
    let finished = explorer.runtime().block_on(work(Random::of(SEED, !run).next(), 25, Some(lie)))?;
    explorer.explore(&finished.history, EFFORT)
}

#[test]
fn a_folder_that_is_not_synced_is_noticed() {
    let _shared = shared_failpoints();
    assert_caught("a missing sync of a folder", |run| explore_on_a_disk_that_lies(run, Lie::NoFolderSync));
}

#[test]
fn an_acknowledgement_before_the_sync_is_noticed() {
    let _shared = shared_failpoints();
    assert_caught("an early acknowledgement", |run| explore_on_a_disk_that_lies(run, Lie::EarlySync));
}

#[test]
fn a_rename_in_two_steps_is_noticed() {
    let _shared = shared_failpoints();
    assert_caught("a rename in two steps", |run| explore_on_a_disk_that_lies(run, Lie::RenameInTwoSteps));
}

/// Runs the check with a bug in the log itself, alone, since the bug is in every log of this process.
fn assert_caught_in_the_log(failpoint: &str, run: impl Fn(u64) -> Result<(), String>) {
    let _alone = only_failpoints();
    let _scenario = fail::FailScenario::setup();
    fail::cfg(failpoint, "return").unwrap();
    assert_caught(failpoint, run);
}

#[test]
fn a_bad_checksum_that_is_accepted_is_noticed() {
    assert_caught_in_the_log("landfall-log::accept-bad-checksum", |run| damage::flip_bits(SEED, run));
}

#[test]
fn a_message_that_is_served_before_the_sync_is_noticed() {
    assert_caught_in_the_log("landfall-log::serve-unsynced", |run| {
        runtime().block_on(visibility::look_before_each_sync(SEED, run)).map_err(String::from)
    });
}

/// Work over reopened and killed logs, which checks each answer, and crashes at every moment of it.
fn explore_everything(run: u64) -> Result<(), String> {
    let mut explorer = Explorer::new(Random::of(SEED, run));
    let finished = explorer.runtime().block_on(work(Random::of(SEED, !run).next(), 25, None))?;
    explorer.explore(&finished.history, EFFORT)
}

#[test]
fn ids_that_are_forgotten_on_restart_are_noticed() {
    assert_caught_in_the_log("landfall-log::forget-ids", explore_everything);
}

#[test]
fn numbers_of_producers_that_are_forgotten_on_restart_are_noticed() {
    assert_caught_in_the_log("landfall-log::forget-sequences", explore_everything);
}

#[test]
fn a_beginning_that_is_not_written_down_before_segments_are_removed_is_noticed() {
    assert_caught_in_the_log("landfall-log::skip-start", explore_everything);
}

#[test]
fn groups_that_retention_does_not_ask_are_noticed() {
    assert_caught_in_the_log("landfall-log::ignore-groups", explore_everything);
}

#[test]
fn compaction_that_keeps_the_oldest_of_a_key_is_noticed() {
    assert_caught_in_the_log("landfall-log::keep-oldest", explore_everything);
}

#[test]
fn room_that_is_written_to_before_it_is_synced_is_noticed() {
    assert_caught_in_the_log("landfall-log::room-unsynced", explore_everything);
}

#[test]
fn last_batches_that_are_written_over_themselves_are_noticed() {
    assert_caught_in_the_log("landfall-log::keep-no-tail", |run| tail::crash_while_opening(SEED, run));
}
