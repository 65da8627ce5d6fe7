//! Several messages in one transaction, and what happens when one of them fails.
//!
//! ```text
//!   a b c d e f   fails at d          a b c, then d alone, then e f
//!   a b c d e f   fails somewhere     a b c, then d e f: halves, until the message that fails is alone
//! ```
//!
//! Batches are optimistic: there is no savepoint, which would cost two round trips a message. A message that fails in a
//! batch is not blamed, because an earlier handler may have broken the transaction; it is attempted alone, and that
//! attempt counts. If it fails there it becomes isolated (`isolated.rs`), and the messages behind it in its key lane go
//! back to the lane. A message is attempted at most twice before it is isolated or settled.

use std::collections::VecDeque;
use std::sync::Arc;

use landfall_core::adapter::{Acknowledge, Arrival, Delivery};
use landfall_core::{Backoff, Database, Failure, Inbox, Message, Position};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::acknowledge;
use super::isolated::Isolated;
use super::lanes::Lane;
use crate::consume::dedup::VerifiedCache;
use crate::consume::outcome::Handled;
use crate::consume::retry::DatabaseBackoff;
use crate::consume::transaction::{MessageTransaction, TransactionError};

/// What became of a batch, for its key lanes.
#[derive(Debug, Default)]
pub(super) struct BatchResult {
    /// The lane of each settled delivery.
    pub(super) settled: Vec<Lane>,
    /// To be attempted alone, while their lanes wait.
    pub(super) isolated: Vec<(Lane, Isolated)>,
    /// Not attempted, because a predecessor in their lane is isolated; in the order they were taken.
    pub(super) put_back: Vec<(Lane, Delivery)>,
}

/// Runs batches of deliveries.
pub(crate) struct BatchRunner<D: Database> {
    pub(crate) transaction: Arc<MessageTransaction<D>>,
    pub(crate) cache: Option<Arc<dyn VerifiedCache<D>>>,
    pub(crate) backoff: Backoff,
    pub(crate) permits: Arc<Semaphore>,
}

/// A readable delivery, taken apart.
struct Item {
    lane: Lane,
    message: Message,
    position: Position,
    acknowledgement: Box<dyn Acknowledge>,
}

impl Item {
    fn arrival(&self) -> Arrival<'_> {
        Arrival { message: &self.message, origin: Some(self.position) }
    }

    fn into_delivery(self) -> (Lane, Delivery) {
        (self.lane, Delivery::new(Ok(self.message), self.position, self.acknowledgement))
    }
}

impl<D: Inbox> BatchRunner<D> {
    /// Handles a batch and acknowledges the settled deliveries. When `stop` is cancelled the rest is returned to the
    /// broker by being dropped.
    pub(super) async fn run(
        &self,
        batch: Vec<(Lane, Delivery)>,
        permit: OwnedSemaphorePermit,
        stop: &CancellationToken,
    ) -> BatchResult {
        let mut result = BatchResult::default();
        let mut permit = TransactionPermit { semaphore: self.permits.clone(), permit: Some(permit) };
        let mut database = DatabaseBackoff::new(self.backoff);
        let items = isolate_unreadable(batch, &mut result);
        let mut chunks = VecDeque::from([self.acknowledge_duplicates(items, &mut result).await]);
        while let Some(chunk) = chunks.pop_front() {
            let chunk = without_isolated_lanes(chunk, &mut result);
            if chunk.is_empty() {
                continue;
            }
            if stop.is_cancelled() || permit.acquire().await.is_err() {
                break;
            }
            let arrivals: Vec<_> = chunk.iter().map(Item::arrival).collect();
            match self.transaction.run(&arrivals, 1).await {
                Ok(outcomes) => self.acknowledge_settled(chunk, outcomes, &mut result).await,
                Err(TransactionError::Failed(failed)) if chunk.len() == 1 => {
                    isolate(chunk, Some(failed.failure), &mut result);
                }
                Err(TransactionError::Failed(failed)) => {
                    tracing::debug!(messages = chunk.len(), failure = %failed.failure, "batch failed, splitting it");
                    metrics::counter!("landfall_batch_fallback_total").increment(1);
                    push_front(&mut chunks, split(chunk, failed.index));
                }
                Err(TransactionError::Unreachable(error) | TransactionError::Database(error)) if chunk.len() == 1 => {
                    tracing::debug!(%error, "database unavailable, isolating the message");
                    isolate(chunk, None, &mut result);
                }
                Err(TransactionError::Unreachable(error)) => {
                    permit.release();
                    database.sleep_after(&error, stop).await;
                    chunks.push_front(chunk);
                }
                // Smaller, because the error may be a deadlock with another batch.
                Err(TransactionError::Database(error)) => {
                    permit.release();
                    database.sleep_after(&error, stop).await;
                    push_front(&mut chunks, split(chunk, None));
                }
            }
        }
        result
    }

    async fn acknowledge_settled(&self, chunk: Vec<Item>, outcomes: Vec<Handled>, result: &mut BatchResult) {
        self.remember(&chunk);
        for (item, outcome) in chunk.into_iter().zip(outcomes) {
            acknowledge::settled(item.acknowledgement, outcome).await;
            result.settled.push(item.lane);
        }
    }

    /// Acknowledges the messages that the cache knows as handled, and returns the others.
    async fn acknowledge_duplicates(&self, items: Vec<Item>, result: &mut BatchResult) -> Vec<Item> {
        let Some(cache) = &self.cache else { return items };
        let compared = items.iter().filter(|item| item.message.mode.is_deduplicated());
        let ids: Vec<_> = compared.map(|item| item.message.id).collect();
        if ids.is_empty() {
            return items;
        }
        let inbox = &self.transaction.inbox;
        let handled = cache.handled(&inbox.database, &inbox.group, &ids).await;
        let is_duplicate = |item: &Item| item.message.mode.is_deduplicated() && handled.contains(&item.message.id);
        let (duplicates, rest): (Vec<_>, Vec<_>) = items.into_iter().partition(is_duplicate);
        for item in duplicates {
            acknowledge::settled(item.acknowledgement, Handled::Duplicate).await;
            result.settled.push(item.lane);
        }
        rest
    }

    /// Adds committed ids to the cache, in a task of its own so that the batch does not wait for it.
    fn remember(&self, chunk: &[Item]) {
        let Some(cache) = self.cache.clone() else { return };
        let settled = chunk.iter().filter(|item| item.message.mode.is_deduplicated());
        let ids: Vec<_> = settled.map(|item| item.message.id).collect();
        let group = self.transaction.inbox.group.clone();
        tokio::spawn(async move { cache.remember(&group, &ids).await });
    }
}

/// The right to have a transaction open; released while the batch waits.
struct TransactionPermit {
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl TransactionPermit {
    async fn acquire(&mut self) -> Result<(), AcquireError> {
        if self.permit.is_none() {
            self.permit = Some(self.semaphore.clone().acquire_owned().await?);
        }
        Ok(())
    }

    fn release(&mut self) {
        self.permit = None;
    }
}

/// Isolates deliveries that are not messages, and returns the others.
fn isolate_unreadable(batch: Vec<(Lane, Delivery)>, result: &mut BatchResult) -> Vec<Item> {
    let mut items = Vec::with_capacity(batch.len());
    for (lane, delivery) in batch {
        let (message, position, acknowledgement) = delivery.into_parts();
        match message {
            Ok(message) => items.push(Item { lane, message, position, acknowledgement }),
            Err(error) => {
                let delivery = Delivery::new(Err(error), position, acknowledgement);
                // `without_isolated_lanes` puts back what follows it in its lane.
                result.isolated.push((lane, Isolated { delivery, failure: None }));
            }
        }
    }
    items
}

/// Puts back the messages of `chunk` that are behind an isolated one in their lane, and returns the others.
fn without_isolated_lanes(chunk: Vec<Item>, result: &mut BatchResult) -> Vec<Item> {
    let is_behind = |item: &Item, isolated: &[(Lane, Isolated)]| {
        item.lane != Lane::Unordered && isolated.iter().any(|(lane, _)| *lane == item.lane)
    };
    let (behind, ready): (Vec<_>, Vec<_>) = chunk.into_iter().partition(|item| is_behind(item, &result.isolated));
    result.put_back.extend(behind.into_iter().map(Item::into_delivery));
    ready
}

fn isolate(chunk: Vec<Item>, failure: Option<Failure>, result: &mut BatchResult) {
    for item in chunk {
        let (lane, delivery) = item.into_delivery();
        result.isolated.push((lane, Isolated { delivery, failure: failure.clone() }));
    }
}

/// Before, at and after the message that failed; halves where that is not known.
fn split(mut chunk: Vec<Item>, index: Option<usize>) -> Vec<Vec<Item>> {
    match index {
        Some(index) => {
            let after = chunk.split_off((index + 1).min(chunk.len()));
            let failed = chunk.split_off(index.min(chunk.len()));
            vec![chunk, failed, after]
        }
        None => {
            let second = chunk.split_off(chunk.len() / 2);
            vec![chunk, second]
        }
    }
}

fn push_front(chunks: &mut VecDeque<Vec<Item>>, parts: Vec<Vec<Item>>) {
    for part in parts.into_iter().rev() {
        chunks.push_front(part);
    }
}
