//! A single flipped bit at any place.

use landfall_core::ErrorKind;
use landfall_log::Options;
use landfall_testkit::VIOLATION;

use crate::explore::{CrashPoint, Explorer, check};
use crate::random::{Random, seed};
use crate::reference::Reference;
use crate::session::Failure;
use crate::shared_failpoints;
use crate::tree::Tree;
use crate::workload::{Finished, work};

const RUNS: u64 = 6;
const STEPS: usize = 20;
const FLIPS_PER_IMAGE: usize = 60;

/// Opens the log on a disk with one flipped bit: the log reports it, or its content is correct nevertheless.
async fn check_detected_or_harmless(image: Tree, reference: Reference, options: Options) -> Result<(), String> {
    match check(image, reference, options).await {
        Ok(_) => Ok(()),
        // A flipped bit in a version number makes it an unknown version.
        Err(Failure::Refused(error)) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

/// The closed log, and the log as a killed process leaves it at some points, with all of its writes.
fn images(finished: &Finished, random: &mut Random) -> Result<Vec<(Tree, Reference)>, String> {
    let mut images = vec![(finished.tree.clone(), finished.reference.clone())];
    let chosen: Vec<usize> = (0..3).map(|_| random.below(finished.history.journal.len())).collect();
    let mut crash_point = CrashPoint::first(&finished.history);
    for position in 0.. {
        if chosen.contains(&position) {
            images.push((crash_point.crash.image(&[]), crash_point.reference.clone()));
        }
        if !crash_point.advance(&finished.history)? {
            break;
        }
    }
    Ok(images)
}

fn flip(image: &Tree, random: &mut Random) -> Option<(Tree, String)> {
    let mut image = image.clone();
    let files = image.files();
    let (path, node) = files.get(random.below(files.len().max(1)))?;
    let bytes = image.file_mut(*node);
    let (at, bit) = (random.below(bytes.len().max(1)), random.below(8));
    *bytes.get_mut(at)? ^= 1 << bit;
    Some((image, format!("bit {bit} of byte {at} of {path}")))
}

/// Flips bits in the images of one run, and fails at the first flip that is served silently.
pub(crate) fn flip_bits(seed: u64, run: u64) -> Result<(), String> {
    let explorer = Explorer::new(Random::for_part(seed, run));
    let mut random = Random::for_part(seed, run + 1000);
    let finished = explorer.runtime().block_on(work(Random::for_part(seed, !run).next(), STEPS, None))?;
    for (image, reference) in images(&finished, &mut random)? {
        for _ in 0..FLIPS_PER_IMAGE {
            let Some((flipped, what)) = flip(&image, &mut random) else { continue };
            let checked = check_detected_or_harmless(flipped, reference.clone(), finished.history.options);
            let failure = explorer.runtime().block_on(checked);
            failure.map_err(|failure| format!("LANDFALL_SEED={seed}, run {run}: {failure}\n  after {what}"))?;
        }
    }
    Ok(())
}

#[test]
fn flipped_bit_is_never_served_or_ignored() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        flip_bits(seed(), run).unwrap_or_else(|failure| panic!("{VIOLATION} {failure}"));
    }
}
