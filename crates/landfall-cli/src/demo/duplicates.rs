//! An unreliable broker, on purpose: about every tenth message is appended to the log a second time.
//!
//! Half of the copies follow at once; the others are kept until something else was published, so that an old message
//! turns up behind newer ones of its customer. Real brokers do both: a producer that never heard the answer sends
//! again, and sends late.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use landfall::{Message, Outcome, Publisher};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Marks a copy in the log, so that the account can count them. The message id is the original's.
pub(super) const MARK: &str = "demo-duplicate";

const PROBABILITY: f64 = 0.1;

pub(super) struct Duplicates {
    broker: Arc<dyn Publisher>,
    state: Mutex<State>,
}

struct State {
    random: StdRng,
    /// Copies that come late. A crash forgets them, which is one duplicate less and nothing lost.
    late: Vec<Message>,
}

impl Duplicates {
    pub(super) fn new(broker: Arc<dyn Publisher>, seed: u64) -> Self {
        Self { broker, state: Mutex::new(State { random: StdRng::seed_from_u64(seed), late: Vec::new() }) }
    }

    /// The copies to append now: the late ones of earlier batches, and some of this one.
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
        // Nobody asked for the copies, so nobody waits to hear what became of them.
        self.broker.publish(&self.copies(batch, &outcomes)).await;
        outcomes
    }
}
