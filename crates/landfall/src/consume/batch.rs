//! Several messages through one transaction, and what happens when one of them fails.
//!
//! ```text
//!   a b c d e f   fails at d          a b c, then d by itself, then e f
//!   a b c d e f   fails somewhere     a b c, then d e f: halves, until the one that fails is alone
//! ```
//!
//! All of it is run optimistically: no savepoint, which would cost two round trips a message. A message that fails in
//! a batch is not blamed for it, since an earlier handler may have broken the transaction; it is tried by itself, and
//! what it does there counts. If it fails there it leaves the batch and goes its own way (`attempt.rs`), and what is
//! behind it in its lane goes back to the lane. Every message is tried at most twice before it is alone or done.

use std::collections::VecDeque;
use std::sync::Arc;

use landfall_core::{Acknowledge, Arrival, Delivery, Failure, Inbox, Message, Position, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, Trial, pause_unless_stopped};
use super::lanes::Lane;
use super::work::Work;

/// What became of a batch, as far as its lanes are concerned.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) settled: Vec<Lane>,
    /// To be tried by themselves, their lanes waiting.
    pub(super) apart: Vec<(Lane, Apart)>,
    /// Not begun because something of their lane is apart; in the order they were taken.
    pub(super) put_back: Vec<(Lane, Delivery)>,
}

/// A message on its own way, with what is known of it.
#[derive(Debug)]
pub(super) struct Apart {
    pub(super) delivery: Delivery,
    pub(super) failed: Option<Failure>,
}

/// One that can be tried: readable, with its acknowledgement beside it.
struct Item {
    lane: Lane,
    message: Message,
    position: Position,
    acknowledge: Box<dyn Acknowledge>,
}

impl Item {
    fn arrival(&self) -> Arrival<'_> {
        Arrival { message: &self.message, origin: Some(self.position) }
    }

    fn into_delivery(self) -> (Lane, Delivery) {
        (self.lane, Delivery::new(Ok(self.message), self.position, self.acknowledge))
    }
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Handles a batch and acknowledges what is settled of it. Returns early, giving the rest back to the broker, when
    /// `stop` is cancelled.
    pub(super) async fn settle_batch(
        &self,
        batch: Vec<(Lane, Delivery)>,
        permit: OwnedSemaphorePermit,
        stop: &CancellationToken,
    ) -> Done {
        let mut done = Done::default();
        let mut turn = Turn { semaphore: self.running.clone(), permit: Some(permit) };
        let items = sort_out(batch, &mut done);
        let mut chunks = VecDeque::from([self.turn_copies_away(items, &mut done).await]);
        let mut trouble = 0;
        while let Some(chunk) = chunks.pop_front() {
            let chunk = without_lanes_apart(chunk, &mut done);
            if chunk.is_empty() {
                continue;
            }
            if stop.is_cancelled() || turn.take().await.is_err() {
                break;
            }
            let arrivals: Vec<_> = chunk.iter().map(Item::arrival).collect();
            match self.transact(&arrivals, 1).await {
                Trial::Settled(outcomes) => {
                    self.remember(&chunk);
                    for (item, outcome) in chunk.into_iter().zip(outcomes) {
                        self.acknowledge(item.acknowledge, outcome).await;
                        done.settled.push(item.lane);
                    }
                }
                Trial::Failed(stumble) if chunk.len() == 1 => leave(chunk, Some(stumble.failure), &mut done),
                Trial::Failed(stumble) => {
                    tracing::debug!(messages = chunk.len(), failure = %stumble.failure, "a batch is taken apart");
                    metrics::counter!("landfall_batch_fallback_total").increment(1);
                    for part in split(chunk, stumble.at).into_iter().rev() {
                        chunks.push_front(part);
                    }
                }
                Trial::Unreachable(error) | Trial::Trouble(error) if chunk.len() == 1 => {
                    tracing::debug!(%error, "the database cannot be used");
                    leave(chunk, None, &mut done);
                }
                Trial::Unreachable(error) => {
                    trouble += 1;
                    turn.leave();
                    pause_unless_stopped(self.pause_for_database(&error, trouble), stop).await;
                    chunks.push_front(chunk);
                }
                // Two batches that wait for each other in a circle get along when they are smaller.
                Trial::Trouble(error) => {
                    trouble += 1;
                    turn.leave();
                    pause_unless_stopped(self.pause_for_database(&error, trouble), stop).await;
                    for part in split(chunk, None).into_iter().rev() {
                        chunks.push_front(part);
                    }
                }
            }
        }
        done
    }
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Acknowledges what is known to be handled, and answers with the rest.
    async fn turn_copies_away(&self, items: Vec<Item>, done: &mut Done) -> Vec<Item> {
        let Some(front) = &self.front else { return items };
        let compared = items.iter().filter(|item| item.message.mode.is_deduplicated());
        let ids: Vec<_> = compared.map(|item| item.message.id).collect();
        if ids.is_empty() {
            return items;
        }
        let handled = front.handled(&self.database, &self.group, &ids).await;
        let is_copy = |item: &Item| item.message.mode.is_deduplicated() && handled.contains(&item.message.id);
        let (copies, rest): (Vec<_>, Vec<_>) = items.into_iter().partition(is_copy);
        for item in copies {
            self.acknowledge(item.acknowledge, "duplicate").await;
            done.settled.push(item.lane);
        }
        rest
    }

    /// Tells the front what is committed, in a task of its own: nobody waits for it.
    fn remember(&self, chunk: &[Item]) {
        let Some(front) = self.front.clone() else { return };
        let settled = chunk.iter().filter(|item| item.message.mode.is_deduplicated());
        let ids: Vec<_> = settled.map(|item| item.message.id).collect();
        let group = self.group.clone();
        tokio::spawn(async move { front.remember(&group, &ids).await });
    }
}

/// The right to have a transaction open; given up while waiting.
struct Turn {
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    async fn take(&mut self) -> Result<(), tokio::sync::AcquireError> {
        if self.permit.is_none() {
            self.permit = Some(self.semaphore.clone().acquire_owned().await?);
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.permit = None;
    }
}

/// What cannot be read leaves at once.
fn sort_out(batch: Vec<(Lane, Delivery)>, done: &mut Done) -> Vec<Item> {
    let mut items = Vec::with_capacity(batch.len());
    for (lane, delivery) in batch {
        let (message, position, acknowledge) = delivery.into_parts();
        match message {
            Ok(message) => items.push(Item { lane, message, position, acknowledge }),
            Err(error) => {
                let delivery = Delivery::new(Err(error), position, acknowledge);
                // A lane of which something is apart takes back what follows; see `without_lanes_apart`.
                done.apart.push((lane, Apart { delivery, failed: None }));
            }
        }
    }
    items
}

/// What may still be tried of `chunk`; what stands behind a message that left goes back to its lane.
fn without_lanes_apart(chunk: Vec<Item>, done: &mut Done) -> Vec<Item> {
    let place_of = |item: &Item, apart: &[(Lane, Apart)]| {
        item.lane != Lane::Alone && apart.iter().any(|(lane, _)| *lane == item.lane)
    };
    let (back, kept): (Vec<_>, Vec<_>) = chunk.into_iter().partition(|item| place_of(item, &done.apart));
    done.put_back.extend(back.into_iter().map(Item::into_delivery));
    kept
}

fn leave(chunk: Vec<Item>, failed: Option<Failure>, done: &mut Done) {
    for item in chunk {
        let (lane, delivery) = item.into_delivery();
        done.apart.push((lane, Apart { delivery, failed: failed.clone() }));
    }
}

/// Before, at, and after the message that failed; or halves where nobody knows.
fn split(mut chunk: Vec<Item>, at: Option<usize>) -> Vec<Vec<Item>> {
    match at {
        Some(at) => {
            let after = chunk.split_off((at + 1).min(chunk.len()));
            let failed = chunk.split_off(at.min(chunk.len()));
            vec![chunk, failed, after]
        }
        None => {
            let second = chunk.split_off(chunk.len() / 2);
            vec![chunk, second]
        }
    }
}
