//! One bit that changed by itself, anywhere.

use landfall_core::ErrorKind;
use landfall_log::Options;

use crate::explore::{Explorer, Moment, check};
use crate::random::{Random, seed};
use crate::reference::Reference;
use crate::session::Verdict;
use crate::shared_failpoints;
use crate::tree::Tree;
use crate::workload::{Finished, work};

const RUNS: u64 = 6;
const STEPS: usize = 20;
const FLIPS_PER_IMAGE: usize = 60;

/// Opens the log on a disk with one wrong bit: the log says so, or what it holds is right all the same.
async fn judge(image: Tree, reference: Reference, options: Options) -> Result<(), String> {
    match check(image, reference, options).await {
        Ok(_) => Ok(()),
        // A changed number of a version is a version that this build does not know.
        Err(Verdict::Refused(error)) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => Ok(()),
        Err(verdict) => Err(verdict.into()),
    }
}

/// The closed log, and the log as the end of its process left it at some moment, nothing of it lost.
fn images(finished: &Finished, random: &mut Random) -> Result<Vec<(Tree, Reference)>, String> {
    let mut images = vec![(finished.tree.clone(), finished.reference.clone())];
    let chosen: Vec<usize> = (0..3).map(|_| random.below(finished.history.journal.len())).collect();
    let mut moment = Moment::first(&finished.history);
    for position in 0.. {
        if chosen.contains(&position) {
            images.push((moment.crash.image(&[]), moment.reference.clone()));
        }
        if !moment.advance(&finished.history)? {
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

/// Flips bits in the images of one run, and stops at the first that is served as if nothing had happened.
pub(crate) fn flip_bits(seed: u64, run: u64) -> Result<(), String> {
    let explorer = Explorer::new(Random::of(seed, run));
    let mut random = Random::of(seed, run + 1000);
    let finished = explorer.runtime().block_on(work(Random::of(seed, !run).next(), STEPS, None))?;
    for (image, reference) in images(&finished, &mut random)? {
        for _ in 0..FLIPS_PER_IMAGE {
            let Some((flipped, what)) = flip(&image, &mut random) else { continue };
            let verdict = explorer.runtime().block_on(judge(flipped, reference.clone(), finished.history.options));
            verdict.map_err(|verdict| format!("LANDFALL_SEED={seed}, run {run}: {verdict}\n  after {what}"))?;
        }
    }
    Ok(())
}

#[test]
fn no_flipped_bit_is_served_or_makes_a_message_disappear_silently() {
    let _shared = shared_failpoints();
    for run in 0..RUNS {
        flip_bits(seed(), run).unwrap_or_else(|verdict| panic!("{verdict}"));
    }
}
