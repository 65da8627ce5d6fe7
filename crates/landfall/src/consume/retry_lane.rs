//! Where a message waits for its next try (R6).
//!
//! ```text
//!                        │ Broker             │ Topic                          │ Database
//!   it is kept           │ here, not          │ in `<topic>.retry`, with its   │ in the dead letters as
//!   meanwhile            │ acknowledged       │ attempts and its due time      │ delayed, with its due time
//!   its key waits        │ in its lane        │ in its lane, not acknowledged: │ behind it in the table
//!                        │                    │ only what has no order goes    │
//!   after a crash        │ from the first try │ from the try it was at         │ from the try it was at
//! ```
//!
//! Whatever waits without being to blame for it (an open breaker, a dependency that cannot be reached, a predecessor that is
//! missing) stays here: moving it aside would empty the broker's backlog into the lane for as long as an outage takes.

use std::time::Duration;

use landfall_core::{Database, Failure, Message};

use super::attempt::Attempts;
use super::options::Order;
use super::retry_topic::RetryTopic;

/// Where a message waits for its next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryLane {
    /// In this process, as a delivery that is not acknowledged. Costs no write, takes up room of the broker and of
    /// [`Options::max_in_flight`](super::Options::max_in_flight), and begins with the first try again after a crash.
    #[default]
    Broker,
    /// In the topic `<topic>.retry`, from which the group takes it when it is due. Only what has no order goes there: a
    /// message with a key under [`Order::ByKey`] waits as under `Broker`, since its successors must not overtake it.
    Topic,
    /// In the table of dead letters, as `delayed`, for any broker. The successors of its key queue behind it.
    Database,
}

/// Where one message goes.
pub(super) enum Route<'a> {
    Here,
    Topic(&'a RetryTopic),
    Database,
}

impl<D: Database, W> Attempts<D, W> {
    /// Where `message`, which failed with `failure`, waits for `pause`.
    pub(super) fn route(&self, message: &Message, failure: &Failure, pause: Duration) -> Route<'_> {
        if pause < self.lane_after || !failure.spends_attempt() {
            return Route::Here;
        }
        match (self.retry_lane, self.order, &message.key) {
            // Its whole partition waits for it, and a table knows keys only.
            (_, Order::ByPartition, _) | (RetryLane::Broker, ..) | (RetryLane::Topic, Order::ByKey, Some(_)) => {
                Route::Here
            }
            (RetryLane::Topic, ..) => self.retry_topic.as_ref().map_or(Route::Here, Route::Topic),
            (RetryLane::Database, ..) => Route::Database,
        }
    }
}
