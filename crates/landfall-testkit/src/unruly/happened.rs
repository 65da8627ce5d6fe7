//! What was done: a test in which nothing happened proves nothing.

/// Counts of what really took place, not of what was intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Happened {
    /// Handed out, copies included.
    pub deliveries: u64,
    /// Deliveries that had copies made, and how many copies were made.
    pub duplicated: u64,
    pub copies: u64,
    /// Copies that came to another member than the one that got the message itself.
    pub copies_elsewhere: u64,
    /// Deliveries that were kept waiting.
    pub delayed: u64,
    /// Deliveries that others came before, and of these, those that one of their own key came before.
    pub overtaken: u64,
    pub overtaken_within_key: u64,
    /// Acknowledgements that got lost.
    pub acks_lost: u64,
    /// Memberships that were lost silently, and with an error.
    pub rebalances: u64,
    pub disconnects: u64,
    /// Acknowledgements that came after their membership was lost, and failed.
    pub late_acks: u64,
    /// Publishes that were carried out and not answered.
    pub answers_lost: u64,
}
