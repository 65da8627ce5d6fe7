//! A fast hash of ids, keyed differently in every process.
//!
//! Publishers choose the ids. The secret key keeps them from choosing many ids that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret key.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdHashBuilder {
    secrets: [u64; 4],
}

impl IdHashBuilder {
    pub(super) fn new() -> Self {
        // The standard library seeds its hasher from the operating system.
        let random = RandomState::new();
        Self { secrets: std::array::from_fn(|index| random.hash_one(index)) }
    }

    pub(super) fn hash(&self, number: u128) -> u64 {
        let [low, high, again, last] = self.secrets;
        let folded = fold(number as u64 ^ low, (number >> 64) as u64 ^ high);
        // A second round, because one multiplication spreads the bits of a factor with many zeros badly.
        fold(folded ^ again, last | 1)
    }
}

/// XORs both halves of the product.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

impl BuildHasher for IdHashBuilder {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher { hasher: *self, hash: 0 }
    }
}

/// For maps with 128-bit keys; other keys are hashed in parts of 128 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdHasher {
    hasher: IdHashBuilder,
    hash: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(16) {
            let mut number = [0; 16];
            number[..part.len()].copy_from_slice(part);
            self.write_u128(u128::from_le_bytes(number));
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.hash = self.hasher.hash(number ^ u128::from(self.hash));
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn similar_ids_spread_over_the_whole_range() {
        let hasher = IdHashBuilder::new();
        let single = (0..128).map(|bit| 1_u128 << bit);
        let numbers: HashSet<u128> =
            single.clone().chain(0..1000).chain(single.map(|one| !one)).chain((0..1000).map(|low| low << 64)).collect();
        let hashes: HashSet<u64> = numbers.iter().map(|number| hasher.hash(*number)).collect();
        assert_eq!(hashes.len(), numbers.len());
        let mut parts = [0; 16];
        hashes.iter().for_each(|hash| parts[(hash >> 60) as usize] += 1);
        let expected = numbers.len() / 16;
        assert!(parts.iter().all(|part| (expected / 2..expected * 2).contains(part)), "{parts:?}");
    }

    #[test]
    fn every_process_hashes_differently() {
        let (one, other) = (IdHashBuilder::new(), IdHashBuilder::new());
        assert!((0..10).all(|number| one.hash(number) == one.hash(number)));
        assert!((0..10).any(|number| one.hash(number) != other.hash(number)));
        assert_eq!(one.hash_one(7_u128), one.hash(7));
    }
}
