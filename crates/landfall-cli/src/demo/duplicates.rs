//! An unreliable broker, on purpose: it appends about every tenth message to the log a second time.
//!
//! Half of the duplicates follow at once. The others wait until something else is published, so that an old message
//! appears behind newer ones of its customer. Real brokers do both: a producer without an acknowledgement sends again,
//! sometimes late.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use landfall::{Message, Outcome, Publisher};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Header that marks a duplicate, so that the account can count them. The message id is that of the original.
pub(super) const MARK: &str = "demo-duplicate";

const PROBABILITY: f64 = 0.1;

pub(super) struct Duplicates {
    broker: Arc<dyn Publisher>,
    state: Mutex<State>,
}

struct State {
    random: StdRng,
    /// Duplicates to append later. A crash drops them, which loses no message.
    late: Vec<Message>,
}

impl Duplicates {
    pub(super) fn new(broker: Arc<dyn Publisher>, seed: u64) -> Self {
        Self { broker, state: Mutex::new(State { random: StdRng::seed_from_u64(seed), late: Vec::new() }) }
    }

    /// Returns the duplicates to append now: late ones of earlier batches, and some of this one.
    fn copies(&self, batch: &[Message], outcomes: &[Outcome]) -> Vec<Message> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = std::mem::take(&mut state.late);
        for (message, _) in batch.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_accepted()) {
            if !state.random.random_bool(PROBABILITY) {
                continue;
            }
            let mut copy = message.clone();
            if copy.headers.insert(MARK, "1").is_ok() {
                if state.random.random() { now.push(copy) } else { state.late.push(copy) }
            }
        }
        now
    }
}

#[async_trait]
impl Publisher for Duplicates {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let outcomes = self.broker.publish(batch).await;
        // The relay knows nothing of the duplicates, so their outcomes are dropped.
        self.broker.publish(&self.copies(batch, &outcomes)).await;
        outcomes
    }
}
