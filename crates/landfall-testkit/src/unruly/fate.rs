//! What happens to one delivery: worked out from the seed and where it stands, so that no scheduler has a say in it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::troubles::Troubles;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fate {
    /// How late each of the copies comes.
    pub(super) copies: Vec<Duration>,
    pub(super) delay: Option<Duration>,
    pub(super) overtaken_by: Option<u32>,
    pub(super) is_ack_lost: bool,
    pub(super) loss: Option<Loss>,
}

/// How a membership is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Rebalance,
    Disconnect,
}

impl Fate {
    /// Each kind of trouble has numbers of its own, so that turning one off changes nothing about the others.
    pub(super) fn of(troubles: &Troubles, place: &impl Hash) -> Self {
        let mut fate = Self::default();
        let mut random = numbers(troubles.seed, "copies", place);
        if happens(&mut random, troubles.duplicated) {
            for _ in 0..random.random_range(1..=troubles.copies_max.max(1)) {
                let is_late = happens(&mut random, troubles.delayed);
                fate.copies.push(if is_late { delay(&mut random, troubles) } else { Duration::ZERO });
            }
        }
        let mut random = numbers(troubles.seed, "delay", place);
        if happens(&mut random, troubles.delayed) {
            fate.delay = Some(delay(&mut random, troubles));
        }
        let mut random = numbers(troubles.seed, "overtaken", place);
        if happens(&mut random, troubles.overtaken) {
            fate.overtaken_by = Some(random.random_range(1..=troubles.overtaken_by_max.max(1)));
        }
        fate.is_ack_lost = happens(&mut numbers(troubles.seed, "ack", place), troubles.acks_lost);
        if happens(&mut numbers(troubles.seed, "disconnect", place), troubles.disconnected) {
            fate.loss = Some(Loss::Disconnect);
        } else if happens(&mut numbers(troubles.seed, "rebalance", place), troubles.rebalanced) {
            fate.loss = Some(Loss::Rebalance);
        }
        fate
    }

    /// Whether the answer to the publish with this number is lost.
    pub(super) fn is_answer_lost(troubles: &Troubles, number: u64) -> bool {
        happens(&mut numbers(troubles.seed, "answer", &number), troubles.answers_lost)
    }
}

fn numbers(seed: u64, kind: &str, place: &impl Hash) -> StdRng {
    let mut hasher = DefaultHasher::new();
    (seed, kind).hash(&mut hasher);
    place.hash(&mut hasher);
    StdRng::seed_from_u64(hasher.finish())
}

fn happens(random: &mut StdRng, share: f64) -> bool {
    random.random_bool(share.clamp(0.0, 1.0))
}

/// Never nothing, so that whoever is delayed is seen to be.
fn delay(random: &mut StdRng, troubles: &Troubles) -> Duration {
    troubles.delay_max.mul_f64(random.random_range(0.1..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_has_the_same_fate_and_another_seed_has_another() {
        let fates = |seed| (0..200).map(|n| Fate::of(&Troubles::everything(seed), &n)).collect::<Vec<_>>();
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn turning_one_trouble_off_leaves_the_others_as_they_were() {
        let troubles = Troubles::everything(5);
        let fewer = Troubles { duplicated: 0.0, rebalanced: 0.0, ..troubles };
        for place in 0..200 {
            let (fate, calmer) = (Fate::of(&troubles, &place), Fate::of(&fewer, &place));
            assert_eq!((fate.delay, fate.overtaken_by), (calmer.delay, calmer.overtaken_by));
            assert_eq!(fate.is_ack_lost, calmer.is_ack_lost);
        }
    }

    #[test]
    fn shares_are_kept_roughly() {
        let troubles = Troubles { acks_lost: 0.25, ..Troubles::none(3) };
        let lost = (0..2_000).filter(|n| Fate::of(&troubles, n).is_ack_lost).count();
        assert!((400..600).contains(&lost), "{lost}");
    }
}
