//! How a consumer works; every field has a default that suits a service of ordinary size.

use std::time::Duration;

use landfall_core::Backoff;

use super::retry_lane::RetryLane;

#[derive(Debug, Clone)]
pub struct Options {
    /// Transactions that are open at the same time; never two with messages of one key.
    pub concurrency: usize,
    /// The most messages that share one transaction; 1 gives each message its own. Nobody waits for a batch to fill
    /// up: what has arrived while the handlers were busy is taken together.
    pub batch: usize,
    /// What must not overtake what.
    pub order: Order,
    /// What keeps a message from taking effect twice.
    pub idempotence: Idempotence,
    /// Deliveries taken from the broker and not yet finished. At least twice what `concurrency` batches hold.
    pub max_in_flight: usize,
    /// How many of `max_in_flight` one lane may take up. What it has beyond that is kept besides, up to
    /// [`Options::MOST_BESIDES`] times `max_in_flight`, so that a hot key keeps no other one from being received.
    pub max_in_flight_per_lane: usize,
    /// For a message whose handler failed: delays between its tries, and how many tries before it is parked.
    pub backoff: Backoff,
    /// Where it waits between its tries.
    pub retry_lane: RetryLane,
    /// What waits for less than this stays here, whatever the lane is.
    pub lane_after: Duration,
    /// How often to look for what is delayed and due, and for dead letters that a person redrove.
    pub redrive_poll: Duration,
    /// Delayed messages and redriven dead letters that are handled at the same time, each of another key.
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
    /// How many times `max_in_flight` is kept in memory when a few keys have most of the messages.
    pub const MOST_BESIDES: usize = 16;

    /// `max_in_flight`, or what keeps every batch full: the next ones arrive while these are at work.
    pub(super) fn room(&self) -> usize {
        self.max_in_flight.max(2 * self.batch.max(1) * self.concurrency.max(1)).max(1)
    }

    /// With one transaction for many messages a lane may need a whole batch, and the next one.
    pub(super) fn room_per_lane(&self) -> usize {
        self.max_in_flight_per_lane.max(2 * self.batch.max(1)).min(self.room())
    }
}

/// What is handled one after the other; everything else is handled side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// All messages of a partition. A message that is tried again holds up its whole partition until it succeeds or
    /// is parked; what follows a parked one goes on, except its own key.
    ByPartition,
    /// The messages of a key. Those without a key wait for nobody.
    #[default]
    ByKey,
    /// Nothing. A message that is tried again or parked holds up nobody, its own key included.
    Unordered,
}

/// Who sees to it that a message takes effect once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idempotence {
    /// The inbox: its row commits with the effect, and a copy is turned away before the handler is called.
    #[default]
    Inbox,
    /// The handler, whose own tables know what was done (`unless_there`, `changed`, `first_time`). No row is written to
    /// the inbox, and the handler is called for every copy.
    Handler,
}
