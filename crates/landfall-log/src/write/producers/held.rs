//! Where messages wait for the ones before them.
//!
//! Bounded for each producer in number and in bytes, so that one that lost a message cannot fill the memory with what
//! came after. How long something waits is up to whoever put it here: it keeps the ticket, and takes it out again.

use std::collections::{BTreeMap, HashMap};

use super::ProducerId;

/// What waits in one partition.
#[derive(Debug)]
pub(crate) struct Held<T> {
    limits: Limits,
    by_producer: HashMap<ProducerId, Room<T>>,
    next_number: u64,
}

/// How much of one producer may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) batches: usize,
    pub(crate) bytes: usize,
}

/// Stands for something that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    producer: ProducerId,
    first_sequence: u64,
    /// Never given twice, so that an old ticket does not take out what came later with the same sequence.
    number: u64,
}

#[derive(Debug)]
struct Room<T> {
    /// By first sequence.
    waiting: BTreeMap<u64, Waiting<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    bytes: usize,
    content: T,
}

impl<T> Held<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, by_producer: HashMap::new(), next_number: 0 }
    }

    /// Keeps `content`, messages of `producer` from `first_sequence` on. Gives it back if there is no room, or if
    /// something with the same sequence waits already.
    pub(crate) fn hold(
        &mut self,
        producer: ProducerId,
        first_sequence: u64,
        bytes: usize,
        content: T,
    ) -> Result<Ticket, T> {
        let room = self.by_producer.get(&producer);
        let (batches, used) = room.map_or((0, 0), |room| (room.waiting.len(), room.bytes));
        let is_held = room.is_some_and(|room| room.waiting.contains_key(&first_sequence));
        if is_held || batches >= self.limits.batches || bytes > self.limits.bytes.saturating_sub(used) {
            return Err(content);
        }
        let number = self.next_number;
        self.next_number += 1;
        let room = self.by_producer.entry(producer).or_insert(Room { waiting: BTreeMap::new(), bytes: 0 });
        room.bytes += bytes;
        room.waiting.insert(first_sequence, Waiting { number, bytes, content });
        Ok(Ticket { producer, first_sequence, number })
    }

    /// The first of `producer`'s messages that has no gap before it any more, now that `next_sequence` is next. It may
    /// be a repeat by now, or partly: the caller checks it like one that just came, and asks again.
    pub(crate) fn take_next(&mut self, producer: ProducerId, next_sequence: u64) -> Option<T> {
        let (&first_sequence, _) = self.by_producer.get(&producer)?.waiting.first_key_value()?;
        if first_sequence > next_sequence {
            return None;
        }
        self.take(producer, first_sequence)
    }

    /// Takes out what waits for this ticket; `None` if it is not there any more.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let waiting = self.by_producer.get(&ticket.producer)?.waiting.get(&ticket.first_sequence)?;
        if waiting.number != ticket.number {
            return None;
        }
        self.take(ticket.producer, ticket.first_sequence)
    }

    /// Takes out everything, because the partition or the log is closed.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        let rooms = std::mem::take(&mut self.by_producer).into_values();
        rooms.flat_map(|room| room.waiting.into_values()).map(|waiting| waiting.content)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    fn take(&mut self, producer: ProducerId, first_sequence: u64) -> Option<T> {
        let room = self.by_producer.get_mut(&producer)?;
        let waiting = room.waiting.remove(&first_sequence)?;
        room.bytes -= waiting.bytes;
        if room.waiting.is_empty() {
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
        /// By one of the tickets that were ever given.
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
        /// Compared with a plain list of what waits: producer, first sequence, bytes, content.
        #[test]
        fn what_waits_is_what_was_held_and_never_more_than_allowed(
            steps in proptest::collection::vec(any_step(), 1..100),
        ) {
            let mut held = Held::new(LIMITS);
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
