//! Messages delivered to a consumer and not yet acknowledged.

mod offsets;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, Result};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::state::{Next, State};

/// The longest delay of a message that is given back: ten years, which every clock can add to the present.
const MAX_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The task that fetches is woken each time this many fetched messages were delivered.
const REFILL: usize = 64;

/// One message on its way through a consumer.
///
/// It holds the content itself, so that a message is stored once and moves from the queue to the consumer and back.
#[derive(Debug)]
pub struct InFlightMessage<O, T> {
    pub partition: u32,
    pub offset: O,
    pub content: T,
    generation: u64,
}

impl<O, T> InFlightMessage<O, T> {
    /// The generation of its partition when it arrived.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Separates the content of a message that is never given back from what is needed to finish it.
    pub fn split(self) -> (InFlightMessage<O, ()>, T) {
        let Self { partition, offset, content, generation } = self;
        (InFlightMessage { partition, offset, content: (), generation }, content)
    }
}

/// What a partition had in flight when it was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revoked<O> {
    /// Everything that arrived before it is finished; `None` if everything that arrived is finished.
    pub first_unfinished: Option<O>,
    /// The number of messages in flight.
    pub in_flight: usize,
}

/// The messages that one member of a group has fetched and not finished.
///
/// A message is in flight from its arrival until it is finished: while it waits for [`next`](Self::next), while the
/// consumer has it, and while it waits to be redelivered.
///
/// * **Order**: messages come out in the order of their arrival. Redeliveries that are due come first; of one partition
///   the lowest offset first.
/// * **Generations**: each assignment of a partition begins a new generation. A message of an earlier generation can
///   neither be finished nor given back: the partition's new owner delivers it again.
/// * **Memory**: only unfinished messages are stored, so memory is bounded by the number in flight.
///
/// `O` is an offset: anything that orders the messages of a partition.
#[derive(Debug)]
pub struct InFlight<O, T> {
    state: Mutex<State<O, T>>,
    /// Wakes [`InFlight::next`].
    arrived: Notify,
    /// Wakes the task that fetches.
    room: Notify,
}

impl<O: Ord + Copy, T> Default for InFlight<O, T> {
    fn default() -> Self {
        Self { state: Mutex::new(State::default()), arrived: Notify::new(), room: Notify::new() }
    }
}

impl<O: Ord + Copy, T> InFlight<O, T> {
    /// Begins a new generation of `partition`, and returns its number. Messages of the generation before are forgotten.
    pub fn assign(&self, partition: u32) -> u64 {
        let generation = self.state().assign(partition);
        self.room.notify_one();
        generation
    }

    /// Ends the generation of `partition`: another member has it now.
    pub fn revoke(&self, partition: u32) -> Revoked<O> {
        let revoked = self.state().revoke(partition);
        self.room.notify_one();
        revoked
    }

    /// Delivers nothing more of `partition`, which is about to be revoked. What the consumer has of it may still be
    /// finished; what it gives back is not redelivered here.
    pub fn drain(&self, partition: u32) {
        self.state().drain(partition);
        self.room.notify_one();
    }

    /// Adds messages in the order given. Ignores those of partitions that are not assigned or are being drained, and
    /// those already in flight. Returns how many were added.
    pub fn arrive(&self, messages: impl IntoIterator<Item = (u32, O, T)>) -> usize {
        let mut state = self.state();
        let added = messages
            .into_iter()
            .filter_map(|(partition, offset, content)| state.arrive(partition, offset, content).then_some(()));
        let added = added.count();
        drop(state);
        self.arrived.notify_one();
        added
    }

    /// Returns the next message to deliver; waits for one. `None` after [`close`](Self::close). For one caller at a
    /// time. Cancellation-safe: a message is taken only when it is returned.
    pub async fn next(&self) -> Result<Option<InFlightMessage<O, T>>> {
        self.next_or_else(|| ()).await
    }

    /// [`next`](Self::next), which calls `idle` each time before it waits.
    pub async fn next_or_else(&self, mut idle: impl FnMut()) -> Result<Option<InFlightMessage<O, T>>> {
        loop {
            match self.take() {
                Next::Message(message) => return Ok(Some(message)),
                Next::Failed(error) => return Err(error),
                Next::Closed => return Ok(None),
                Next::Empty { due: None } => {
                    idle();
                    self.arrived.notified().await;
                }
                Next::Empty { due: Some(due) } => {
                    idle();
                    let _due = timeout_at(due, self.arrived.notified()).await;
                }
            }
        }
    }

    /// Returns the next message to deliver if there is one now.
    pub fn try_next(&self) -> Option<InFlightMessage<O, T>> {
        match self.take() {
            Next::Message(message) => Some(message),
            _ => None,
        }
    }

    fn take(&self) -> Next<O, T> {
        let mut state = self.state();
        let next = state.take(Instant::now);
        if matches!(next, Next::Message(_)) && state.waiting().is_multiple_of(REFILL) {
            self.room.notify_one();
        }
        next
    }

    /// Marks `message` as finished. Returns the number of messages still in flight; `None` if the message belongs to an
    /// earlier generation.
    pub fn finish<U>(&self, message: &InFlightMessage<O, U>) -> Option<usize> {
        let unfinished = self.state().finish(message)?;
        self.room.notify_one();
        Some(unfinished)
    }

    /// Redelivers `message`, not before `delay`. Does nothing if the message belongs to an earlier generation.
    pub fn give_back(&self, message: InFlightMessage<O, T>, delay: Duration) {
        self.state().give_back(message, Instant::now() + delay.min(MAX_DELAY));
        self.arrived.notify_one();
        self.room.notify_one();
    }

    /// Removes the messages that wait to be delivered and that `matches` selects, and returns them in order. They are
    /// no longer in flight, and not finished either.
    pub fn remove_waiting(&self, matches: impl Fn(&T) -> bool) -> Vec<InFlightMessage<O, T>> {
        let removed = self.state().remove_waiting(|message| matches(&message.content));
        self.room.notify_one();
        removed
    }

    /// Reports `error` from the next call of [`next`](Self::next).
    pub fn fail(&self, error: Error) {
        self.state().failure = Some(error);
        self.arrived.notify_one();
    }

    /// Delivers nothing more, and returns what waited to be delivered, which stays unfinished. What the consumer has
    /// may still be finished.
    pub fn close(&self) -> Vec<InFlightMessage<O, T>> {
        let waiting = self.state().close();
        self.arrived.notify_one();
        self.room.notify_one();
        waiting
    }

    /// Waits until messages were finished, given back or delivered, or a partition was revoked: there may be room to
    /// fetch more. For one caller at a time.
    pub async fn room_changed(&self) {
        self.room.notified().await;
    }

    /// When the first redelivery that is not due yet becomes due.
    pub fn next_due(&self) -> Option<Instant> {
        self.state().next_due()
    }

    /// The number of messages in flight.
    pub fn len(&self) -> usize {
        self.state().unfinished()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of messages that arrived and were never delivered.
    pub fn waiting(&self) -> usize {
        self.state().waiting()
    }

    /// Whether `message` belongs to the present generation of its partition.
    pub fn is_current(&self, message: &InFlightMessage<O, T>) -> bool {
        self.state().is_current(message)
    }

    /// The number of messages of `partition` in flight.
    pub fn len_of(&self, partition: u32) -> usize {
        self.state().partition(partition).map_or(0, |partition| partition.unfinished.len())
    }

    /// The unfinished offsets of `partition`, in order.
    pub fn unfinished(&self, partition: u32) -> Vec<O> {
        self.state().partition(partition).map_or(Vec::new(), |partition| partition.unfinished.iter().collect())
    }

    /// The first unfinished offset of `partition`: everything that arrived before it is finished. `None` if everything
    /// that arrived is finished, or the partition is not assigned. Never passes a message that was removed unfinished.
    pub fn first_unfinished(&self, partition: u32) -> Option<O> {
        self.state().partition(partition)?.first_unfinished()
    }

    /// How many messages of `partition` arrived since the first unfinished one, that one included: those a new owner
    /// would deliver again.
    pub fn backlog(&self, partition: u32) -> usize {
        self.state().partition(partition).map_or(0, |partition| partition.unfinished.backlog())
    }

    /// No caller panics while it holds the lock, so the state is consistent even if the mutex is poisoned.
    fn state(&self) -> MutexGuard<'_, State<O, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_core::ErrorKind;

    use super::*;

    fn one_partition(offsets: impl IntoIterator<Item = u64>) -> InFlight<u64, ()> {
        let in_flight = InFlight::default();
        in_flight.assign(0);
        in_flight.arrive(offsets.into_iter().map(|offset| (0, offset, ())));
        in_flight
    }

    #[tokio::test]
    async fn next_waits_for_an_arrival() {
        let in_flight = Arc::new(one_partition([]));
        let waiting = tokio::spawn({
            let in_flight = in_flight.clone();
            async move { in_flight.next().await }
        });
        tokio::task::yield_now().await;
        in_flight.arrive([(0, 7, ())]);
        assert_eq!(waiting.await.unwrap().unwrap().unwrap().offset, 7);
    }

    #[tokio::test]
    async fn next_waits_for_a_delayed_redelivery() {
        let in_flight = one_partition([1]);
        let message = in_flight.next().await.unwrap().unwrap();
        let (began, delay) = (Instant::now(), Duration::from_millis(20));
        in_flight.give_back(message, delay);
        assert!(in_flight.try_next().is_none());
        assert_eq!(in_flight.next().await.unwrap().unwrap().offset, 1);
        assert!(began.elapsed() >= delay);
    }

    #[tokio::test]
    async fn a_delay_beyond_every_clock_is_accepted() {
        let in_flight = one_partition([1]);
        let message = in_flight.next().await.unwrap().unwrap();
        in_flight.give_back(message, Duration::MAX);
        assert!(in_flight.try_next().is_none());
    }

    #[tokio::test]
    async fn a_failure_is_reported_once_and_close_ends_delivery() {
        let in_flight = one_partition([1]);
        in_flight.fail(Error::new(ErrorKind::Unavailable, "gone"));
        assert!(in_flight.next().await.is_err());
        let message = in_flight.next().await.unwrap().unwrap();
        assert!(in_flight.close().is_empty());
        assert!(in_flight.next().await.unwrap().is_none());
        assert_eq!(in_flight.finish(&message), Some(0), "what the consumer has may be finished after close");
    }
}
