//! The records in flight of one member, shared by the subscriber, its deliveries and the thread that polls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_broker_toolkit::{InFlight, InFlightMessage, Settle};
use landfall_core::{Error, Result};

use crate::subscriber::record::Record;

/// How long to wait for more room once there is some.
const MUCH_ROOM: Duration = Duration::from_millis(1);

/// How many times the limit of records in flight may arrive from one partition behind an unfinished record.
const MAX_BACKLOG: usize = 10;

/// A partition is numbered as in Kafka, and a generation is one assignment of it.
#[derive(Debug)]
pub(crate) struct Deliveries {
    in_flight: InFlight<i64, Record>,
    /// The assigned partitions. Changed only by the thread that polls.
    partitions: Mutex<BTreeMap<i32, Partition>>,
    /// Wakes the thread that polls. The state is that of `in_flight`; the mutex only closes the gap between checking it
    /// and waiting.
    room: (Mutex<()>, Condvar),
    limit: usize,
    is_closing: AtomicBool,
}

#[derive(Debug, Default)]
struct Partition {
    /// The offset behind the last record that arrived; `None` before the first.
    next: Option<i64>,
    /// The finished prefix that was stored last.
    stored: Option<i64>,
    /// Nothing more is fetched until more of the prefix is finished.
    is_paused: bool,
}

impl Deliveries {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            in_flight: InFlight::default(),
            partitions: Mutex::default(),
            room: (Mutex::default(), Condvar::new()),
            limit,
            is_closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn assign(&self, partitions: impl IntoIterator<Item = i32>) {
        let mut assigned = self.partitions();
        for partition in partitions {
            self.begin(&mut assigned, partition);
        }
    }

    /// Forgets partitions that another member has from now on. Their records in flight settle nothing any more.
    pub(crate) fn revoke(&self, partitions: impl IntoIterator<Item = i32>) {
        let mut assigned = self.partitions();
        for partition in partitions {
            assigned.remove(&partition);
            self.in_flight.revoke(number(partition));
        }
        drop(assigned);
        self.notify_room();
    }

    pub(crate) fn revoke_all(&self) {
        let assigned: Vec<i32> = self.partitions().keys().copied().collect();
        self.revoke(assigned);
    }

    /// The assigned partitions from which nothing has arrived yet.
    pub(crate) fn untouched(&self) -> Vec<i32> {
        let untouched = |(partition, state): (&i32, &Partition)| state.next.is_none().then_some(*partition);
        self.partitions().iter().filter_map(untouched).collect()
    }

    /// Adds records in the order of their offsets. Ignores those of partitions revoked meanwhile. An offset that goes
    /// back means that the partition was truncated, which begins a new generation.
    pub(crate) fn arrive(&self, records: Vec<Record>) {
        let mut assigned = self.partitions();
        let mut arrived = Vec::with_capacity(records.len());
        for record in records {
            let Record { partition, offset, .. } = record;
            let Some(state) = assigned.get_mut(&partition) else { continue };
            let is_truncated = state.next.is_some_and(|next| offset < next);
            state.next = Some(offset + 1);
            if is_truncated {
                self.in_flight.arrive(std::mem::take(&mut arrived));
                self.begin(&mut assigned, partition).next = Some(offset + 1);
            }
            arrived.push((number(partition), offset, record));
        }
        self.in_flight.arrive(arrived);
    }

    fn begin<'a>(&self, assigned: &'a mut BTreeMap<i32, Partition>, partition: i32) -> &'a mut Partition {
        self.in_flight.assign(number(partition));
        let state = assigned.entry(partition).or_default();
        *state = Partition::default();
        state
    }

    /// The partitions to pause now, and those to resume. A partition whose prefix waits for an unfinished record is
    /// paused at `MAX_BACKLOG`: the records behind it are delivered again if this member dies.
    pub(crate) fn pauses(&self) -> (Vec<i32>, Vec<i32>) {
        let (mut pause, mut resume) = (Vec::new(), Vec::new());
        let most = self.limit.saturating_mul(MAX_BACKLOG);
        for (partition, state) in self.partitions().iter_mut() {
            let backlog = self.in_flight.backlog(number(*partition));
            let changed = match state.is_paused {
                false if backlog >= most => &mut pause,
                true if backlog <= most / 2 => &mut resume,
                _ => continue,
            };
            changed.push(*partition);
            state.is_paused = !state.is_paused;
        }
        (pause, resume)
    }

    /// Whether `partition` is assigned and not paused.
    pub(crate) fn is_running(&self, partition: i32) -> bool {
        self.partitions().get(&partition).is_some_and(|state| !state.is_paused)
    }

    /// The partitions that are assigned and not paused, each with the offset behind the last record that arrived.
    pub(crate) fn running(&self) -> BTreeMap<i32, Option<i64>> {
        let running = |(partition, state): (&i32, &Partition)| (!state.is_paused).then_some((*partition, state.next));
        self.partitions().iter().filter_map(running).collect()
    }

    /// Returns the next record to deliver; waits for one. Cancellation-safe.
    pub(crate) async fn next(&self) -> Result<Option<InFlightMessage<i64, Record>>> {
        self.in_flight.next().await
    }

    /// For each partition whose finished prefix has grown, the offset at which the next member would begin.
    pub(crate) fn progress(&self) -> Vec<(i32, i64)> {
        let mut partitions = self.partitions();
        let grown = partitions.iter_mut().filter_map(|(partition, state)| {
            let finished = self.in_flight.first_unfinished(number(*partition)).or(state.next)?;
            (state.stored.replace(finished) != Some(finished)).then_some((*partition, finished))
        });
        grown.collect()
    }

    /// How many more records may arrive.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.in_flight.len())
    }

    pub(crate) fn has_too_many(&self) -> bool {
        self.in_flight.len() > self.limit
    }

    /// Blocks until there is room or the member is to leave; `false` if that took longer than `timeout`. Once there is
    /// room it waits a moment for more: a thread that is woken for each record is slow.
    pub(crate) fn wait_for_room(&self, timeout: Duration) -> bool {
        let (lock, room) = &self.room;
        let is_full = |_: &mut ()| self.in_flight.len() >= self.limit && !self.is_closing();
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, waited) = room.wait_timeout_while(guard, timeout, is_full).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return false;
        }
        let is_half_full = |_: &mut ()| self.in_flight.len() > self.limit / 2 && !self.is_closing();
        drop(room.wait_timeout_while(guard, MUCH_ROOM, is_half_full));
        true
    }

    fn notify_room(&self) {
        let (lock, room) = &self.room;
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        room.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Makes the thread that polls leave the group.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.notify_room();
    }

    /// Ends delivery: the thread that polls has ended, because it was closed or because of a permanent `failure`.
    pub(crate) fn left(&self, failure: Option<Error>) {
        if let Some(failure) = failure {
            self.in_flight.fail(failure);
        }
        drop(self.in_flight.close());
    }

    /// No caller panics while it holds the lock, so the state is consistent even if the mutex is poisoned.
    fn partitions(&self) -> MutexGuard<'_, BTreeMap<i32, Partition>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settle for Deliveries {
    type Message = InFlightMessage<i64, Record>;

    fn ack(&self, message: Self::Message) -> Result<()> {
        match self.in_flight.finish(&message) {
            // The thread that polls is woken when there is some room and when there is much, not for each record.
            Some(unfinished) if unfinished + 1 == self.limit || unfinished == self.limit / 2 => self.notify_room(),
            Some(_) => {}
            None => {
                let InFlightMessage { partition, offset, .. } = message;
                tracing::debug!(partition, offset, "acknowledged after the partition moved to another member");
            }
        }
        Ok(())
    }

    fn nack(&self, message: Self::Message, delay: Duration) -> Result<()> {
        self.in_flight.give_back(message, delay);
        Ok(())
    }
}

fn number(partition: i32) -> u32 {
    u32::try_from(partition).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Deliveries {
        pub(crate) fn try_next(&self) -> Option<InFlightMessage<i64, Record>> {
            self.in_flight.try_next()
        }
    }

    fn take(deliveries: &Deliveries) -> InFlightMessage<i64, Record> {
        deliveries.try_next().expect("a record has arrived")
    }

    fn record(partition: i32, offset: i64) -> Record {
        Record::empty(partition, offset)
    }

    #[test]
    fn a_revoked_partition_takes_no_room_and_its_late_ack_moves_nothing() {
        let deliveries = Deliveries::new(2);
        deliveries.assign([0, 1]);
        // Partition 2 is not assigned.
        deliveries.arrive(vec![record(0, 5), record(1, 8), record(2, 1)]);
        let revoked = take(&deliveries);
        assert!(deliveries.room() == 0 && !deliveries.wait_for_room(Duration::ZERO));
        deliveries.revoke([0]);
        assert_eq!(deliveries.room(), 1);
        deliveries.assign([0]);
        deliveries.ack(revoked).unwrap();
        assert_eq!(deliveries.progress(), [(1, 8)]);
    }

    #[test]
    fn progress_is_the_finished_prefix_and_is_reported_once() {
        let deliveries = Deliveries::new(10);
        deliveries.assign([0]);
        assert_eq!(deliveries.progress(), []);
        deliveries.arrive(vec![record(0, 3), record(0, 4)]);
        deliveries.nack(take(&deliveries), Duration::ZERO).unwrap();
        let head = take(&deliveries);
        deliveries.ack(take(&deliveries)).unwrap();
        assert_eq!((deliveries.progress(), deliveries.progress()), (vec![(0, 3)], vec![]));
        deliveries.ack(head).unwrap();
        assert_eq!(deliveries.progress(), [(0, 5)]);
    }

    #[test]
    fn a_truncated_partition_begins_a_new_generation() {
        let deliveries = Deliveries::new(10);
        deliveries.assign([0]);
        deliveries.arrive(vec![record(0, 7), record(0, 8), record(0, 2)]);
        assert_eq!((deliveries.room(), take(&deliveries).offset), (9, 2));
        assert_eq!(deliveries.progress(), [(0, 2)]);
    }

    #[test]
    fn a_partition_with_a_long_backlog_is_paused_until_its_head_is_finished() {
        let deliveries = Deliveries::new(2);
        deliveries.assign([0, 1]);
        deliveries.arrive(vec![record(0, 0), record(1, 0)]);
        deliveries.nack(take(&deliveries), Duration::ZERO).unwrap();
        for offset in 1..20 {
            assert!(deliveries.pauses().0.is_empty() && deliveries.is_running(0), "{offset}");
            deliveries.arrive(vec![record(0, offset), record(1, offset)]);
        }
        assert_eq!(deliveries.pauses(), (vec![0, 1], vec![]));
        assert_eq!(deliveries.pauses(), (vec![], vec![]), "reported once");
        let mut head = None;
        while let Some(message) = deliveries.try_next() {
            match (message.partition, message.offset) {
                (0, 0) => head = Some(message),
                _ => deliveries.ack(message).unwrap(),
            }
        }
        assert_eq!(deliveries.pauses(), (vec![], vec![1]));
        assert!(!deliveries.is_running(0) && deliveries.is_running(1));
        deliveries.ack(head.expect("it was redelivered")).unwrap();
        assert_eq!((deliveries.pauses(), deliveries.progress()), ((vec![], vec![0]), vec![(0, 20), (1, 20)]));
    }
}
