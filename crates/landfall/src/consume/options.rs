//! Options of a consumer. The defaults suit a service of ordinary size.

use std::time::Duration;

use landfall_core::Backoff;

use super::retry::RetryLane;

/// How a consumer receives, orders and retries messages.
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of open transactions. Two of them never hold messages of the same key.
    pub concurrency: usize,
    /// The maximum number of messages in one transaction; 1 gives each message its own. The consumer never waits for a
    /// batch to fill: it takes what arrived while the handlers were busy.
    pub batch: usize,
    /// Which messages must not overtake each other.
    pub order: Order,
    /// What prevents a message from taking effect twice.
    pub idempotence: Idempotence,
    /// The maximum number of deliveries in flight. At least twice what `concurrency` batches hold.
    pub max_in_flight: usize,
    /// The share of `max_in_flight` that one key lane may use. Deliveries beyond it are kept in addition, up to
    /// [`Options::OVERFLOW_FACTOR`] times `max_in_flight`, so that a hot key does not block the receipt of others.
    pub max_in_flight_per_lane: usize,
    /// Delays between the attempts of a failed message, and the number of attempts before it is parked.
    pub backoff: Backoff,
    /// Where a failed message waits between its attempts.
    pub retry_lane: RetryLane,
    /// A message with a shorter pause than this stays in the process, whatever `retry_lane` says.
    pub lane_after: Duration,
    /// How often the consumer polls for delayed messages that are due and for redriven dead letters.
    pub redrive_poll: Duration,
    /// The maximum number of delayed messages and redriven dead letters in progress, each of a different key.
    pub redrive_concurrency: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 16,
            batch: 1,
            order: Order::ByKey,
            idempotence: Idempotence::Inbox,
            max_in_flight: 256,
            max_in_flight_per_lane: 32,
            backoff: Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(10), max_attempts: 8 },
            retry_lane: RetryLane::Broker,
            lane_after: Duration::from_secs(1),
            redrive_poll: Duration::from_millis(500),
            redrive_concurrency: 4,
        }
    }
}

impl Options {
    /// The limit on deliveries in memory, as a multiple of `max_in_flight`, when a few keys have most of the messages.
    pub const OVERFLOW_FACTOR: usize = 16;

    /// `max_in_flight`, or enough to receive the next batches while the current ones run.
    pub(super) fn capacity(&self) -> usize {
        self.max_in_flight.max(2 * self.batch.max(1) * self.concurrency.max(1)).max(1)
    }

    /// `max_in_flight_per_lane`, or enough for one batch and the next from a single lane.
    pub(super) fn lane_capacity(&self) -> usize {
        self.max_in_flight_per_lane.max(2 * self.batch.max(1)).min(self.capacity())
    }
}

/// Which messages are handled sequentially; all others are handled concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// All messages of a partition. A message that is retried blocks its whole partition until it succeeds or is parked.
    /// After that the partition continues, except the key of a parked message.
    ByPartition,
    /// The messages of a key. Messages without a key have no order.
    #[default]
    ByKey,
    /// None. A message that is retried or parked blocks no other, not even of its own key.
    Unordered,
}

/// What makes redeliveries harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idempotence {
    /// The inbox: its row commits with the effect, and a duplicate is discarded before the handler is called.
    #[default]
    Inbox,
    /// The handler, whose own tables show what was done (`unless_there`, `changed`, `first_time`). No inbox row is
    /// written, and the handler is called for every duplicate.
    Handler,
}
