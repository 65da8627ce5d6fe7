//! The source of all randomness: one printed seed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::sync::OnceLock;

/// Random numbers that depend on the seed only, not on the machine or the build (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A separate sequence for one part of the work, independent of how many numbers other parts draw.
    pub(crate) fn for_part(seed: u64, part: u64) -> Self {
        Self(Self(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03)).next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`; `limit` must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// The seed of this run: `LANDFALL_SEED` if set, else a new one each time.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("LANDFALL_SEED").ok();
        let seed = match &given {
            Some(text) => text.parse().expect("LANDFALL_SEED is a number"),
            None => RandomState::new().build_hasher().finish(),
        };
        // Not `println!`: the test harness captures it unless the test fails.
        let _ = writeln!(std::io::stderr(), "simulation of the log: LANDFALL_SEED={seed}");
        seed
    })
}
