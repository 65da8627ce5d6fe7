//! The orders of a run and their faults, derived from the seed alone.
//!
//! Invariant: an order is a function of the seed and its number, so that a restarted process continues the same run.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// The articles the shop sells; an order for any other is poison to the stock service.
pub(super) const CATALOGUE: [&str; 8] = ["anchor", "buoy", "chart", "compass", "lantern", "rope", "sail", "sextant"];

const CUSTOMERS: u32 = 40;

/// One run of the demo: the number of orders, and the seed that determines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) orders: u32,
    pub(crate) seed: u64,
}

/// A customer's order. Every message carries all of it, so that no service has to query another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) number: u32,
    pub(super) customer: String,
    pub(super) sku: String,
    pub(super) quantity: u32,
    pub(super) amount_cents: u32,
}

impl Story {
    /// Returns the order with this number, counted from 1.
    pub(super) fn order(self, number: u32) -> Order {
        let mut random = StdRng::seed_from_u64(self.seed.rotate_left(32) ^ u64::from(number));
        let sku = CATALOGUE[random.random_range(0..CATALOGUE.len())];
        let quantity = random.random_range(1..=3);
        Order {
            number,
            customer: customer(random.random_range(1..=CUSTOMERS)),
            sku: if self.is_poison(number) { format!("unlisted-{number}") } else { sku.to_owned() },
            quantity,
            amount_cents: quantity * random.random_range(500..=20_000),
        }
    }

    /// On purpose: about one order in a hundred, and at least one, names an article the stock service does not know.
    fn is_poison(self, number: u32) -> bool {
        let every = u64::from((self.orders / 2).clamp(1, 100));
        u64::from(number) % every == self.seed % every
    }

    /// On purpose: this order is written, rolled back, and then placed again. The rolled-back message must never be
    /// published.
    pub(super) fn is_rolled_back_first(self, number: u32) -> bool {
        u64::from(number) % 40 == self.seed % 40
    }
}

impl Order {
    /// On purpose: for these orders the first attempt to charge fails.
    pub(super) fn first_charge_fails(&self) -> bool {
        self.number % 25 == 10
    }
}

/// Returns all customers.
pub(super) fn customers() -> impl Iterator<Item = String> {
    (1..=CUSTOMERS).map(customer)
}

fn customer(number: u32) -> String {
    format!("customer-{number:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_depend_only_on_the_seed() {
        let orders = |seed| (1..=50).map(move |number| Story { orders: 50, seed }.order(number)).collect::<Vec<_>>();
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(8));
    }

    #[test]
    fn every_run_has_a_few_poison_orders() {
        for (orders, seed) in [(1, 9), (2, 9), (50, 1), (200, 99), (1000, 12345)] {
            let story = Story { orders, seed };
            let poison = (1..=orders).filter(|number| story.order(*number).sku.starts_with("unlisted")).count();
            assert!((1..=10.max(orders as usize / 100)).contains(&poison), "{poison} of {orders} with seed {seed}");
        }
    }
}
