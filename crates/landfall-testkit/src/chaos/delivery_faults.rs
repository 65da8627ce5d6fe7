//! The faults of one delivery, drawn from the seed and the delivery's identity and so independent of scheduling.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::options::ChaosOptions;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DeliveryFaults {
    /// The delay of each duplicate.
    pub(super) duplicates: Vec<Duration>,
    pub(super) delay: Option<Duration>,
    pub(super) overtaken_by: Option<u32>,
    pub(super) is_ack_lost: bool,
    pub(super) loss: Option<MembershipLoss>,
}

/// How a membership is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MembershipLoss {
    Rebalance,
    Disconnect,
}

impl DeliveryFaults {
    /// Draws the faults of `delivery`. Each kind has its own random numbers, so disabling one keeps the others.
    pub(super) fn draw(options: &ChaosOptions, delivery: &impl Hash) -> Self {
        let mut faults = Self::default();
        let mut random = rng(options.seed, "copies", delivery);
        if happens(&mut random, options.duplicated) {
            for _ in 0..random.random_range(1..=options.duplicates_max.max(1)) {
                let is_late = happens(&mut random, options.delayed);
                faults.duplicates.push(if is_late { delay(&mut random, options) } else { Duration::ZERO });
            }
        }
        let mut random = rng(options.seed, "delay", delivery);
        if happens(&mut random, options.delayed) {
            faults.delay = Some(delay(&mut random, options));
        }
        let mut random = rng(options.seed, "overtaken", delivery);
        if happens(&mut random, options.overtaken) {
            faults.overtaken_by = Some(random.random_range(1..=options.overtaken_by_max.max(1)));
        }
        faults.is_ack_lost = happens(&mut rng(options.seed, "ack", delivery), options.acks_lost);
        if happens(&mut rng(options.seed, "disconnect", delivery), options.disconnected) {
            faults.loss = Some(MembershipLoss::Disconnect);
        } else if happens(&mut rng(options.seed, "rebalance", delivery), options.rebalanced) {
            faults.loss = Some(MembershipLoss::Rebalance);
        }
        faults
    }

    /// Whether the response to the publish with this number is lost.
    pub(super) fn is_response_lost(options: &ChaosOptions, number: u64) -> bool {
        happens(&mut rng(options.seed, "answer", &number), options.responses_lost)
    }
}

fn rng(seed: u64, kind: &str, delivery: &impl Hash) -> StdRng {
    let mut hasher = DefaultHasher::new();
    (seed, kind).hash(&mut hasher);
    delivery.hash(&mut hasher);
    StdRng::seed_from_u64(hasher.finish())
}

fn happens(random: &mut StdRng, rate: f64) -> bool {
    random.random_bool(rate.clamp(0.0, 1.0))
}

/// A delay that is never zero, so that delayed deliveries are observably late.
fn delay(random: &mut StdRng, options: &ChaosOptions) -> Duration {
    options.delay_max.mul_f64(random.random_range(0.1..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_depend_on_seed_and_delivery() {
        let faults =
            |seed| (0..200).map(|n| DeliveryFaults::draw(&ChaosOptions::everything(seed), &n)).collect::<Vec<_>>();
        assert_eq!(faults(1), faults(1));
        assert_ne!(faults(1), faults(2));
    }

    #[test]
    fn disabling_one_fault_keeps_the_others() {
        let options = ChaosOptions::everything(5);
        let fewer = ChaosOptions { duplicated: 0.0, rebalanced: 0.0, ..options };
        for delivery in 0..200 {
            let (all, reduced) = (DeliveryFaults::draw(&options, &delivery), DeliveryFaults::draw(&fewer, &delivery));
            assert_eq!((all.delay, all.overtaken_by), (reduced.delay, reduced.overtaken_by));
            assert_eq!(all.is_ack_lost, reduced.is_ack_lost);
        }
    }

    #[test]
    fn rates_are_roughly_respected() {
        let options = ChaosOptions { acks_lost: 0.25, ..ChaosOptions::none(3) };
        let lost = (0..2_000).filter(|n| DeliveryFaults::draw(&options, n).is_ack_lost).count();
        assert!((400..600).contains(&lost), "{lost}");
    }
}
