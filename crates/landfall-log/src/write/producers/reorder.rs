//! A reorder buffer for batches that arrive before their predecessors.
//!
//! Bounded per producer in number and bytes, so that one lost message cannot fill the memory with its successors. The
//! caller enforces the time limit: it keeps the ticket and removes the batch.

use std::collections::{BTreeMap, HashMap};

use super::ProducerId;

/// The held batches of one partition.
#[derive(Debug)]
pub(crate) struct ReorderBuffer<T> {
    limits: Limits,
    by_producer: HashMap<ProducerId, ProducerQueue<T>>,
    next_number: u64,
}

/// The limits of one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) batches: usize,
    pub(crate) bytes: usize,
}

/// Identifies a held batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    producer: ProducerId,
    first_sequence: u64,
    /// Never reused, so that an old ticket does not remove a later batch with the same sequence.
    number: u64,
}

#[derive(Debug)]
struct ProducerQueue<T> {
    /// By first sequence.
    waiting: BTreeMap<u64, HeldBatch<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct HeldBatch<T> {
    number: u64,
    bytes: usize,
    content: T,
}

impl<T> ReorderBuffer<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, by_producer: HashMap::new(), next_number: 0 }
    }

    /// Holds `content`, messages of `producer` from `first_sequence` on. Returns it as an error if a limit is reached
    /// or a batch with the same sequence is already held.
    pub(crate) fn hold(
        &mut self,
        producer: ProducerId,
        first_sequence: u64,
        bytes: usize,
        content: T,
    ) -> Result<Ticket, T> {
        let queue = self.by_producer.get(&producer);
        let (batches, used) = queue.map_or((0, 0), |queue| (queue.waiting.len(), queue.bytes));
        let is_held = queue.is_some_and(|queue| queue.waiting.contains_key(&first_sequence));
        if is_held || batches >= self.limits.batches || bytes > self.limits.bytes.saturating_sub(used) {
            return Err(content);
        }
        let number = self.next_number;
        self.next_number += 1;
        let queue = self.by_producer.entry(producer).or_insert(ProducerQueue { waiting: BTreeMap::new(), bytes: 0 });
        queue.bytes += bytes;
        queue.waiting.insert(first_sequence, HeldBatch { number, bytes, content });
        Ok(Ticket { producer, first_sequence, number })
    }

    /// Takes the first batch of `producer` without a gap before it, given that `next_sequence` is expected. It may be
    /// a full or partial duplicate by now: the caller checks it like a new one, and calls again.
    pub(crate) fn take_next(&mut self, producer: ProducerId, next_sequence: u64) -> Option<T> {
        let (&first_sequence, _) = self.by_producer.get(&producer)?.waiting.first_key_value()?;
        if first_sequence > next_sequence {
            return None;
        }
        self.take(producer, first_sequence)
    }

    /// Takes the batch of this ticket; `None` if it is no longer held.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let waiting = self.by_producer.get(&ticket.producer)?.waiting.get(&ticket.first_sequence)?;
        if waiting.number != ticket.number {
            return None;
        }
        self.take(ticket.producer, ticket.first_sequence)
    }

    /// Takes all batches, because the partition or the log is closed.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        let queues = std::mem::take(&mut self.by_producer).into_values();
        queues.flat_map(|queue| queue.waiting.into_values()).map(|waiting| waiting.content)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    fn take(&mut self, producer: ProducerId, first_sequence: u64) -> Option<T> {
        let queue = self.by_producer.get_mut(&producer)?;
        let waiting = queue.waiting.remove(&first_sequence)?;
        queue.bytes -= waiting.bytes;
        if queue.waiting.is_empty() {
            self.by_producer.remove(&producer);
        }
        Some(waiting.content)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { batches: 3, bytes: 100 };

    #[derive(Debug, Clone)]
    enum Step {
        Hold {
            producer: u64,
            first_sequence: u64,
            bytes: usize,
        },
        TakeNext {
            producer: u64,
            next_sequence: u64,
        },
        /// By one of all tickets issued so far.
        Remove(proptest::sample::Index),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let (producer, sequence) = (0..2_u64, 0..8_u64);
        prop_oneof![
            4 => (producer.clone(), sequence.clone(), 0..60_usize)
                .prop_map(|(producer, first_sequence, bytes)| Step::Hold { producer, first_sequence, bytes }),
            2 => (producer, sequence)
                .prop_map(|(producer, next_sequence)| Step::TakeNext { producer, next_sequence }),
            1 => any::<proptest::sample::Index>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        /// Compares with a plain list of held batches: producer, first sequence, bytes, content.
        #[test]
        fn buffer_matches_a_list_and_respects_its_limits(
            steps in proptest::collection::vec(any_step(), 1..100),
        ) {
            let mut held = ReorderBuffer::new(LIMITS);
            let mut model: Vec<(u64, u64, usize, usize)> = Vec::new();
            let mut tickets = Vec::new();
            for (content, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Hold { producer, first_sequence, bytes } => {
                        let mine: Vec<_> = model.iter().filter(|waiting| waiting.0 == producer).collect();
                        let used: usize = mine.iter().map(|waiting| waiting.2).sum();
                        let fits = mine.len() < 3
                            && used + bytes <= 100
                            && mine.iter().all(|waiting| waiting.1 != first_sequence);
                        let answer = held.hold(producer, first_sequence, bytes, content);
                        prop_assert_eq!(answer.is_ok(), fits);
                        match answer {
                            Ok(ticket) => {
                                model.push((producer, first_sequence, bytes, content));
                                tickets.push((ticket, content));
                            }
                            Err(given_back) => prop_assert_eq!(given_back, content),
                        }
                    }
                    Step::TakeNext { producer, next_sequence } => {
                        let mine = model.iter().filter(|waiting| waiting.0 == producer && waiting.1 <= next_sequence);
                        let expected = mine.min_by_key(|waiting| waiting.1).map(|waiting| waiting.3);
                        prop_assert_eq!(held.take_next(producer, next_sequence), expected);
                        model.retain(|waiting| Some(waiting.3) != expected);
                    }
                    Step::Remove(which) if !tickets.is_empty() => {
                        let (ticket, content) = tickets[which.index(tickets.len())];
                        let expected = model.iter().find(|waiting| waiting.3 == content).map(|waiting| waiting.3);
                        prop_assert_eq!(held.remove(ticket), expected);
                        model.retain(|waiting| waiting.3 != content);
                    }
                    Step::Remove(_) => {}
                }
                prop_assert_eq!(held.is_empty(), model.is_empty());
            }
            let mut left: Vec<_> = held.drain().collect();
            left.sort_unstable();
            prop_assert_eq!(left, model.iter().map(|waiting| waiting.3).collect::<Vec<_>>());
            prop_assert!(held.is_empty());
        }
    }
}
