//! Where a message waits for its next attempt (R6).
//!
//! ```text
//!                    │ Broker                │ Topic                          │ Database
//!   it is kept       │ in this process,      │ in `<topic>.retry`, with its   │ in the dead letters as
//!                    │ unacknowledged        │ attempts and its due time      │ delayed, with its due time
//!   its key waits    │ in its key lane       │ in its key lane: only messages │ behind it in the table
//!                    │                       │ without order are moved        │
//!   after a crash    │ from the first        │ from the attempt               │ from the attempt
//!   it continues     │ attempt               │ it had reached                 │ it had reached
//! ```
//!
//! A message whose failure does not count (an open breaker, an unreachable dependency, a missing predecessor) stays in
//! this process. Moving such messages would empty the broker's backlog into the retry lane during an outage.

use std::time::Duration;

use landfall_core::{Failure, Message};

use super::topic::RetryTopic;
use crate::consume::options::{Options, Order};

/// Where a failed message waits for its next attempt.
///
/// ```
/// use landfall::consume::{Options, RetryLane};
///
/// // Attempts are counted across restarts, and a failed message frees its place in the broker.
/// let options = Options { retry_lane: RetryLane::Database, ..Options::default() };
/// # assert_ne!(options.retry_lane, RetryLane::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryLane {
    /// In this process, as an unacknowledged delivery. Costs no write, counts against the broker's limits and
    /// [`Options::max_in_flight`](crate::consume::Options::max_in_flight), and starts again from the first attempt
    /// after a crash.
    #[default]
    Broker,
    /// In the topic `<topic>.retry`, which the group reads when the message is due. Only messages without order are
    /// moved: a message with a key under [`Order::ByKey`] waits as under `Broker`, so that its successors cannot
    /// overtake it.
    Topic,
    /// In the dead-letter table with status `delayed`, on any broker. The successors of its key queue behind it.
    Database,
}

/// Chooses where each failed message waits.
pub(crate) struct RetryRouter {
    lane: RetryLane,
    /// Shorter pauses are not worth moving the message.
    move_after: Duration,
    order: Order,
    topic: Option<RetryTopic>,
}

/// Where one message waits.
pub(crate) enum Route<'a> {
    InProcess,
    Topic(&'a RetryTopic),
    Database,
}

impl RetryRouter {
    /// `topic` is needed for [`RetryLane::Topic`].
    pub(crate) fn new(options: &Options, topic: Option<RetryTopic>) -> Self {
        Self { lane: options.retry_lane, move_after: options.lane_after, order: options.order, topic }
    }

    pub(crate) fn topic(&self) -> Option<&RetryTopic> {
        self.topic.as_ref()
    }

    /// Where `message`, which failed with `failure`, waits for `pause`.
    pub(crate) fn route(&self, message: &Message, failure: &Failure, pause: Duration) -> Route<'_> {
        if pause < self.move_after || !failure.spends_attempt() {
            return Route::InProcess;
        }
        match (self.lane, self.order, &message.key) {
            // The whole partition waits for it, and the table holds back keys only.
            (_, Order::ByPartition, _) | (RetryLane::Broker, ..) | (RetryLane::Topic, Order::ByKey, Some(_)) => {
                Route::InProcess
            }
            (RetryLane::Topic, ..) => self.topic.as_ref().map_or(Route::InProcess, Route::Topic),
            (RetryLane::Database, ..) => Route::Database,
        }
    }
}
