//! Fault rates of a chaos broker.

use std::time::Duration;

/// How often each fault happens. A rate is a probability from 0 to 1, per delivery unless its field says otherwise.
///
/// Start from [`ChaosOptions::none`] and enable the faults under test, or use [`ChaosOptions::everything`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChaosOptions {
    /// Decides which delivery has which faults.
    pub seed: u64,
    /// Rate of duplicated deliveries. Duplicates are in flight at the same time, in other members if there are any.
    pub duplicated: f64,
    /// Duplicates per duplicated delivery, not counting the original: from 1 up to this.
    pub duplicates_max: u32,
    /// Rate of delayed deliveries. Duplicates are delayed at the same rate.
    pub delayed: f64,
    pub delay_max: Duration,
    /// Rate of deliveries that are held back until others have overtaken them.
    pub overtaken: f64,
    /// How many others overtake: from 1 up to this.
    pub overtaken_by_max: u32,
    /// Whether messages may overtake a delayed or overtaken message of the same key. Otherwise they wait behind it.
    pub within_key: bool,
    /// Rate of acknowledgements that return `Ok` and are lost: the message is redelivered.
    pub acks_lost: f64,
    /// Rate of deliveries after which the membership is lost and silently replaced by a new one. Unacknowledged
    /// deliveries are redelivered while they are still being handled, and acknowledging the old ones fails.
    pub rebalanced: f64,
    /// As `rebalanced`, and the subscriber's next call returns a temporary error.
    pub disconnected: f64,
    /// Rate of published messages that are stored and reported as [`Outcome::Unknown`](landfall_core::Outcome), so that
    /// the sender sends them again.
    pub responses_lost: f64,
}

impl ChaosOptions {
    /// No faults.
    pub fn none(seed: u64) -> Self {
        Self {
            seed,
            duplicated: 0.0,
            duplicates_max: 3,
            delayed: 0.0,
            delay_max: Duration::from_millis(20),
            overtaken: 0.0,
            overtaken_by_max: 10,
            within_key: false,
            acks_lost: 0.0,
            rebalanced: 0.0,
            disconnected: 0.0,
            responses_lost: 0.0,
        }
    }

    /// All faults that keep the order of a key. A correct consumer tolerates them.
    pub fn everything(seed: u64) -> Self {
        Self {
            duplicated: 0.2,
            duplicates_max: 10,
            delayed: 0.1,
            overtaken: 0.2,
            acks_lost: 0.1,
            rebalanced: 0.02,
            disconnected: 0.01,
            responses_lost: 0.05,
            ..Self::none(seed)
        }
    }
}
