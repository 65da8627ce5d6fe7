//! Bugs planted in the processes of a soak: its judge must see each of them.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SoakPlant {
    /// The relays do not tell themselves apart, so a lease that changes hands keeps its epoch (L7).
    OneEpochForAll,
    /// What the broker refused for now is settled as published (L1).
    SettleWhatFailed,
    /// Each relay takes some of the rows of a key, as `SKIP LOCKED` would hand them out (L4).
    SplitRows,
    /// A writer whose commit broke off writes again without looking (L3).
    RetryBlindly,
}

impl SoakPlant {
    /// How many relays share the rows of a key.
    pub const SPLIT: i64 = 3;
}
