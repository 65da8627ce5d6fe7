//! Options of a consumer. The defaults suit a service of ordinary size.

use std::time::Duration;

use landfall_core::{Backoff, Error, Result};

use super::retry::RetryLane;

/// `max_in_flight` of a consumer with small batches.
const DEFAULT_CAPACITY: usize = 256;
/// `max_in_flight_per_lane` of a consumer with small batches.
const DEFAULT_LANE_CAPACITY: usize = 32;
/// Far above what a database sustains; keeps the capacities far from overflow.
const MAX_CONCURRENCY: usize = 100_000;
const MAX_BATCH: usize = 1_000_000;

/// How a consumer receives, orders and retries messages.
///
/// ```
/// use landfall::consume::{Options, Order, RetryLane};
///
/// // A hundred messages share a transaction; failed ones wait in the database.
/// let options = Options {
///     batch: 100,
///     concurrency: 4,
///     order: Order::ByKey,
///     retry_lane: RetryLane::Database,
///     ..Options::default()
/// };
/// assert_eq!(options.max_in_flight, None);
/// ```
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
    /// The maximum number of deliveries in flight: at least 2 × `batch` × `concurrency`, so that the next batches
    /// arrive while the current ones run. `None` is 256, or more where batches need it.
    pub max_in_flight: Option<usize>,
    /// The share of `max_in_flight` that one key lane may use. Deliveries beyond it are kept in addition, up to
    /// [`Options::OVERFLOW_FACTOR`] times `max_in_flight`, so that a hot key does not block the receipt of others.
    ///
    /// At least 2 × `batch` and at most `max_in_flight`. `None` is 32, or more where batches need it.
    pub max_in_flight_per_lane: Option<usize>,
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
            max_in_flight: None,
            max_in_flight_per_lane: None,
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

    /// The maximum number of deliveries in flight.
    pub(super) fn capacity(&self) -> usize {
        self.max_in_flight.unwrap_or(DEFAULT_CAPACITY.max(self.required_capacity()))
    }

    /// The share of [`Options::capacity`] that one key lane may use.
    pub(super) fn lane_capacity(&self) -> usize {
        self.max_in_flight_per_lane.unwrap_or(DEFAULT_LANE_CAPACITY.max(2 * self.batch).min(self.capacity()))
    }

    /// Every transaction with its batch, and the batch after it.
    fn required_capacity(&self) -> usize {
        2 * self.batch * self.concurrency
    }

    /// Refuses values with which the consumer could not work as documented.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |problem: String| Err(Error::invalid(format!("consumer option {problem}")));
        for (name, value, least, most) in [
            ("concurrency", self.concurrency, 1, MAX_CONCURRENCY),
            ("batch", self.batch, 1, MAX_BATCH),
            ("redrive_concurrency", self.redrive_concurrency, 1, MAX_CONCURRENCY),
        ] {
            if !(least..=most).contains(&value) {
                return refused(format!("{name} is {value}; it must be between {least} and {most}"));
            }
        }
        let (capacity, required) = (self.capacity(), self.required_capacity());
        if capacity < required {
            return refused(format!("max_in_flight is {capacity}; {required} is the least (2 × batch × concurrency)"));
        }
        let (lane, least) = (self.lane_capacity(), 2 * self.batch);
        if !(least..=capacity).contains(&lane) {
            return refused(format!("max_in_flight_per_lane is {lane}; it must be between {least} and {capacity}"));
        }
        if self.backoff.max_attempts == 0 {
            return refused("backoff.max_attempts is 0; it must be at least 1".into());
        }
        if self.redrive_poll.is_zero() {
            return refused("redrive_poll is zero; the consumer would poll without a pause".into());
        }
        Ok(())
    }
}

/// Which messages are handled sequentially; all others are handled concurrently.
///
/// ```
/// use landfall::consume::{Options, Order};
///
/// // Log entries have no order: a failed one must not delay the next.
/// let options = Options { order: Order::Unordered, ..Options::default() };
/// # assert_ne!(options.order, Order::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// All messages of a partition. A message that is retried blocks its whole partition until it succeeds or is
    /// parked. After that the partition continues, except the key of a parked message.
    ByPartition,
    /// The messages of a key. Messages without a key have no order.
    #[default]
    ByKey,
    /// None. A message that is retried or parked blocks no other, not even of its own key.
    Unordered,
}

/// What makes redeliveries harmless.
///
/// ```
/// use landfall::consume::{Idempotence, Options};
///
/// // The handler inserts into a table with a unique constraint, and needs no inbox row.
/// let options = Options { idempotence: Idempotence::Handler, ..Options::default() };
/// # assert_ne!(options.idempotence, Idempotence::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idempotence {
    /// The inbox: its row commits with the effect, and a duplicate is discarded before the handler is called.
    #[default]
    Inbox,
    /// The handler, whose own tables show what was done (`unless_there`, `changed`, `first_time`). No inbox row is
    /// written, and the handler is called for every duplicate.
    Handler,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: Options) -> String {
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn defaults_leave_capacity_for_every_batch() {
        let capacities = |batch, concurrency| {
            let options = Options { batch, concurrency, ..Options::default() };
            options.check().unwrap();
            (options.capacity(), options.lane_capacity())
        };
        assert_eq!(capacities(1, 16), (256, 32));
        assert_eq!(capacities(100, 16), (3200, 200));
        assert_eq!(capacities(1, 1), (256, 32));
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let default = Options::default;
        assert!(refusal(Options { concurrency: 0, ..default() }).contains("concurrency is 0"));
        assert!(refusal(Options { batch: 0, ..default() }).contains("batch is 0"));
        assert!(refusal(Options { redrive_concurrency: 0, ..default() }).contains("redrive_concurrency is 0"));
        let narrow = Options { max_in_flight: Some(100), batch: 10, ..default() };
        assert!(refusal(narrow).contains("max_in_flight is 100; 320 is the least"));
        let narrow = Options { max_in_flight_per_lane: Some(10), batch: 10, ..default() };
        assert!(refusal(narrow).contains("max_in_flight_per_lane is 10; it must be between 20 and 320"));
        let never = Backoff { max_attempts: 0, ..default().backoff };
        assert!(refusal(Options { backoff: never, ..default() }).contains("max_attempts is 0"));
        assert!(refusal(Options { redrive_poll: Duration::ZERO, ..default() }).contains("redrive_poll is zero"));
    }
}
