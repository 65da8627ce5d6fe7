//! The port for deliveries that failed and wait for their next attempt outside of the dead letters.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::{Failure, GroupName, Key, Message, MessageId, Result, Timestamp, TopicName};

/// Deliveries that failed at least once and are attempted again: what operators see while a receiver is down.
///
/// A consumer records a failed attempt here and removes the row when the message is settled, so a delivery that
/// succeeds at once costs nothing. The rows inform people only. A row that a crash left behind is hidden once its
/// message is in the inbox, and [`Expiring::Retries`](crate::Expiring::Retries) removes it.
#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Records a failed attempt of `message` in `group`, in a transaction of its own.
    async fn record_retry(&self, group: &GroupName, message: &Message, retry: Retry<'_>) -> Result<()>;

    /// Removes the record of `message`, if there is one.
    async fn clear_retry(&self, group: &GroupName, message: &Message) -> Result<()>;

    /// Returns at most `limit` matching deliveries, the longest failing first.
    async fn retrying(&self, filter: &DeliveryFilter, limit: usize) -> Result<Vec<RetryingDelivery>>;

    /// Returns how many deliveries of each topic and group are retrying.
    async fn retrying_counts(&self) -> Result<Vec<(TopicName, GroupName, u64)>>;

    /// Returns the groups whose inbox has message `id`, and since when, the earliest first. Such a group has handled
    /// the message, or has it as a dead letter.
    async fn admitted_by(&self, id: MessageId) -> Result<Vec<(GroupName, Timestamp)>>;
}

/// A failed attempt that is followed by another one.
#[derive(Debug, Clone, Copy)]
pub struct Retry<'a> {
    /// Failed attempts, including this one.
    pub attempts: u32,
    pub failure: &'a Failure,
    /// The pause before the next attempt.
    pub after: Duration,
}

/// A delivery that failed and is attempted again.
#[derive(Debug, Clone, Serialize)]
pub struct RetryingDelivery {
    pub message_id: MessageId,
    pub topic: TopicName,
    pub group: GroupName,
    pub key: Option<Key>,
    pub attempts: u32,
    pub error_code: String,
    pub error: String,
    pub first_failed: Timestamp,
    pub last_attempt: Timestamp,
    pub next_attempt: Timestamp,
}

/// Selects deliveries; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub message_id: Option<MessageId>,
    pub topic: Option<TopicName>,
    pub group: Option<GroupName>,
    pub key: Option<Key>,
}
