//! Counters of injected faults: a test in which no fault happened proves nothing.

/// How often each fault really happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChaosCounts {
    /// Deliveries handed out, duplicates included.
    pub deliveries: u64,
    /// Deliveries that were duplicated.
    pub duplicated: u64,
    /// Duplicates created for them.
    pub duplicates: u64,
    /// Duplicates delivered to another member than the original.
    pub duplicates_elsewhere: u64,
    /// Deliveries that were delayed.
    pub delayed: u64,
    /// Deliveries that others overtook.
    pub overtaken: u64,
    /// Deliveries that a message of the same key overtook.
    pub overtaken_within_key: u64,
    /// Acknowledgements that were lost.
    pub acks_lost: u64,
    /// Memberships that were lost silently.
    pub rebalances: u64,
    /// Memberships that were lost with an error.
    pub disconnects: u64,
    /// Acknowledgements that failed because their membership was lost.
    pub late_acks: u64,
    /// Messages that were stored and reported as unknown.
    pub responses_lost: u64,
}
