//! What trouble there shall be.

use std::time::Duration;

/// Each share is a probability from 0 to 1, of deliveries unless it says otherwise. Start from [`Troubles::none`] and add
/// what a test is about, or take [`Troubles::everything`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Troubles {
    /// Decides what happens to which delivery.
    pub seed: u64,
    /// Come several times, without waiting for one another: to other members of the group if there are any.
    pub duplicated: f64,
    /// How many copies there are of such a delivery, besides itself: from 1 up to this.
    pub copies_max: u32,
    /// Come later than they could, and so do some of the copies.
    pub delayed: f64,
    pub delay_max: Duration,
    /// Are held back until others have overtaken them.
    pub overtaken: f64,
    /// By how many: from 1 up to this.
    pub overtaken_by_max: u32,
    /// Whether what is delayed or overtaken is overtaken by messages of its own key too. Otherwise those wait behind it.
    pub within_key: bool,
    /// Acknowledgements that are answered with "done" and get lost: the message comes again.
    pub acks_lost: f64,
    /// After such a delivery the membership is lost and another one begun in its place, without a word: what was handed
    /// out and not acknowledged comes again while it is still being worked on, and acknowledging it fails from then on.
    pub rebalanced: f64,
    /// The same, and the subscriber's next answer is a temporary error.
    pub disconnected: f64,
    /// Publishes that are carried out and answered with "unknown", so that their sender sends again.
    pub answers_lost: f64,
}

impl Troubles {
    /// None at all.
    pub fn none(seed: u64) -> Self {
        Self {
            seed,
            duplicated: 0.0,
            copies_max: 3,
            delayed: 0.0,
            delay_max: Duration::from_millis(20),
            overtaken: 0.0,
            overtaken_by_max: 10,
            within_key: false,
            acks_lost: 0.0,
            rebalanced: 0.0,
            disconnected: 0.0,
            answers_lost: 0.0,
        }
    }

    /// Some of everything that keeps the order of a key: what a consumer that is correct comes through.
    pub fn everything(seed: u64) -> Self {
        Self {
            duplicated: 0.2,
            copies_max: 10,
            delayed: 0.1,
            overtaken: 0.2,
            acks_lost: 0.1,
            rebalanced: 0.02,
            disconnected: 0.01,
            answers_lost: 0.05,
            ..Self::none(seed)
        }
    }
}
