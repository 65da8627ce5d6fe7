//! Planted bugs: the checks must detect each one, or they prove nothing.

use crate::disk::DiskBug;
use crate::explore::{Effort, Explorer};
use crate::random::Random;
use crate::workload::work;
use crate::{damage, exclusive_failpoints, runtime, shared_failpoints, tail, visibility};

/// A fixed seed: detection of a planted bug must not depend on luck.
const SEED: u64 = 1;
/// If this many runs do not detect a bug, the checks are insufficient.
const RUNS: u64 = 100;
const EFFORT: Effort =
    Effort { images_per_crash_point: 2, exhaustive_tears: 0, continued_percent: 100, crashed_again_percent: 0 };

fn assert_caught(bug: &str, run: impl Fn(u64) -> Result<(), String>) {
    assert!((0..RUNS).any(|number| run(number).is_err()), "{bug} was not detected");
}

fn explore_with_disk_bug(run: u64, bug: DiskBug) -> Result<(), String> {
    let mut explorer = Explorer::new(Random::for_part(SEED, run));
    let finished = explorer.runtime().block_on(work(Random::for_part(SEED, !run).next(), 25, Some(bug)))?;
    explorer.explore(&finished.history, EFFORT)
}

#[test]
fn missing_folder_sync_is_detected() {
    let _shared = shared_failpoints();
    assert_caught("a missing sync of a folder", |run| explore_with_disk_bug(run, DiskBug::NoFolderSync));
}

#[test]
fn acknowledgement_before_the_sync_is_detected() {
    let _shared = shared_failpoints();
    assert_caught("an early acknowledgement", |run| explore_with_disk_bug(run, DiskBug::EarlySync));
}

#[test]
fn rename_in_two_steps_is_detected() {
    let _shared = shared_failpoints();
    assert_caught("a rename in two steps", |run| explore_with_disk_bug(run, DiskBug::RenameInTwoSteps));
}

/// Runs the check with a bug in the log itself. It runs alone, because the bug affects every log of this process.
fn assert_caught_in_the_log(failpoint: &str, run: impl Fn(u64) -> Result<(), String>) {
    let _alone = exclusive_failpoints();
    let _scenario = fail::FailScenario::setup();
    fail::cfg(failpoint, "return").unwrap();
    assert_caught(failpoint, run);
}

#[test]
fn accepted_bad_checksum_is_detected() {
    assert_caught_in_the_log("landfall-log::accept-bad-checksum", |run| damage::flip_bits(SEED, run));
}

#[test]
fn message_served_before_the_sync_is_detected() {
    assert_caught_in_the_log("landfall-log::serve-unsynced", |run| {
        runtime().block_on(visibility::read_before_each_sync(SEED, run)).map_err(String::from)
    });
}

/// Runs work with reopened and killed logs, checks each result, and crashes at every point.
fn explore_everything(run: u64) -> Result<(), String> {
    let mut explorer = Explorer::new(Random::for_part(SEED, run));
    let finished = explorer.runtime().block_on(work(Random::for_part(SEED, !run).next(), 25, None))?;
    explorer.explore(&finished.history, EFFORT)
}

#[test]
fn ids_forgotten_on_restart_are_detected() {
    assert_caught_in_the_log("landfall-log::forget-ids", explore_everything);
}

#[test]
fn sequences_forgotten_on_restart_are_detected() {
    assert_caught_in_the_log("landfall-log::forget-sequences", explore_everything);
}

#[test]
fn segments_removed_before_saving_the_start_are_detected() {
    assert_caught_in_the_log("landfall-log::skip-start", explore_everything);
}

#[test]
fn retention_that_ignores_groups_is_detected() {
    assert_caught_in_the_log("landfall-log::ignore-groups", explore_everything);
}

#[test]
fn compaction_that_keeps_the_oldest_of_a_key_is_detected() {
    assert_caught_in_the_log("landfall-log::keep-oldest", explore_everything);
}

#[test]
fn write_into_unsynced_preallocation_is_detected() {
    assert_caught_in_the_log("landfall-log::room-unsynced", explore_everything);
}

#[test]
fn rewriting_last_batches_in_place_is_detected() {
    assert_caught_in_the_log("landfall-log::keep-no-tail", |run| tail::crash_while_opening(SEED, run));
}
