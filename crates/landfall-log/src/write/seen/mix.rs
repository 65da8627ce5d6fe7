//! A hash of ids that is quick, and different in every process.
//!
//! Ids are chosen by whoever publishes. With secret numbers in the hash nobody can choose many that fall on the
//! same place.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    secrets: [u64; 4],
}

impl Mix {
    pub(super) fn new() -> Self {
        // The standard library takes the seed of its hashing from the system.
        let random = RandomState::new();
        Self { secrets: std::array::from_fn(|index| random.hash_one(index)) }
    }

    pub(super) fn hash(&self, number: u128) -> u64 {
        let [low, high, again, last] = self.secrets;
        let folded = fold(number as u64 ^ low, (number >> 64) as u64 ^ high);
        // Once more, because one multiplication spreads the bits of a factor with many zeros badly.
        fold(folded ^ again, last | 1)
    }
}

/// Both halves of the product.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

impl BuildHasher for Mix {
    type Hasher = MixHasher;

    fn build_hasher(&self) -> MixHasher {
        MixHasher { mix: *self, hash: 0 }
    }
}

/// For maps whose keys are numbers of 128 bits; others are hashed too, one such part after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct MixHasher {
    mix: Mix,
    hash: u64,
}

impl Hasher for MixHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(16) {
            let mut number = [0; 16];
            number[..part.len()].copy_from_slice(part);
            self.write_u128(u128::from_le_bytes(number));
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.hash = self.mix.hash(number ^ u128::from(self.hash));
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
    fn ids_that_differ_in_few_bits_are_spread_over_all_numbers() {
        let mix = Mix::new();
        let single = (0..128).map(|bit| 1_u128 << bit);
        let numbers: HashSet<u128> =
            single.clone().chain(0..1000).chain(single.map(|one| !one)).chain((0..1000).map(|low| low << 64)).collect();
        let hashes: HashSet<u64> = numbers.iter().map(|number| mix.hash(*number)).collect();
        assert_eq!(hashes.len(), numbers.len());
        let mut parts = [0; 16];
        hashes.iter().for_each(|hash| parts[(hash >> 60) as usize] += 1);
        let expected = numbers.len() / 16;
        assert!(parts.iter().all(|part| (expected / 2..expected * 2).contains(part)), "{parts:?}");
    }

    #[test]
    fn another_process_hashes_otherwise() {
        let (one, other) = (Mix::new(), Mix::new());
        assert!((0..10).all(|number| one.hash(number) == one.hash(number)));
        assert!((0..10).any(|number| one.hash(number) != other.hash(number)));
        assert_eq!(one.hash_one(7_u128), one.hash(7));
    }
}
