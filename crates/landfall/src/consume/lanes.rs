//! Lanes keep order: what is in one lane runs one after the other, lanes run side by side.
//!
//! A lane exists while it has work. It is *ready* when it has deliveries waiting and none of them is at work; a batch
//! takes from the ready lanes in turn, one of each before a second of any, so that a lane with many deliveries is
//! served no sooner than one with few. Deliveries without order have no lane and wait for nobody.

use std::collections::{HashMap, VecDeque};

use landfall_core::{Delivery, Key};

use super::options::{Options, Order};

/// What a lane is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Key(Key),
    Partition(u32),
    /// None at all.
    Alone,
    /// None, for one that waits for its predecessors. It takes up no room: they could not be received for want of it.
    Early,
}

impl Lane {
    fn of(delivery: &Delivery, order: Order) -> Self {
        let key = || delivery.message.as_ref().ok().and_then(|message| message.key.clone());
        match order {
            Order::ByPartition => Lane::Partition(delivery.position.partition),
            Order::ByKey => key().map_or(Lane::Alone, Lane::Key),
            Order::Unordered => Lane::Alone,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Delivery>,
    /// At work, or taken out of a batch and at work by itself.
    running: usize,
}

impl Queue {
    fn len(&self) -> usize {
        self.waiting.len() + self.running
    }
}

#[derive(Debug)]
enum Ready {
    Lane(Lane),
    Alone(Delivery),
}

#[derive(Debug)]
pub(super) struct Lanes {
    order: Order,
    queues: HashMap<Lane, Queue>,
    ready: VecDeque<Ready>,
    /// Running or waiting.
    in_flight: usize,
    /// The same, with no more than `room_per_lane` of each lane.
    counted: usize,
    room: usize,
    room_per_lane: usize,
}

impl Lanes {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            order: options.order,
            queues: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            counted: 0,
            room: options.room(),
            room_per_lane: options.room_per_lane(),
        }
    }

    /// Whether another delivery may be taken from the broker.
    pub(super) fn has_room(&self) -> bool {
        self.counted < self.room && self.in_flight < self.room.saturating_mul(Options::MOST_BESIDES)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The deliveries of the fullest lane, and of all lanes together.
    pub(super) fn depth(&self) -> (usize, usize) {
        (self.queues.values().map(Queue::len).max().unwrap_or(0), self.in_flight)
    }

    pub(super) fn arrived(&mut self, delivery: Delivery) {
        self.in_flight += 1;
        let lane = Lane::of(&delivery, self.order);
        if lane == Lane::Alone {
            self.counted += 1;
            self.ready.push_back(Ready::Alone(delivery));
            return;
        }
        let queue = self.queues.entry(lane.clone()).or_default();
        if queue.len() == 0 {
            self.ready.push_back(Ready::Lane(lane));
        }
        if queue.len() < self.room_per_lane {
            self.counted += 1;
        }
        queue.waiting.push_back(delivery);
    }

    /// At most `limit` deliveries that may run now, those of one lane in their order.
    pub(super) fn take(&mut self, limit: usize) -> Vec<(Lane, Delivery)> {
        let mut batch = Vec::new();
        let mut taken_from: Vec<Lane> = Vec::new();
        while batch.len() < limit {
            match self.ready.pop_front() {
                None => break,
                Some(Ready::Alone(delivery)) => batch.push((Lane::Alone, delivery)),
                Some(Ready::Lane(lane)) => {
                    batch.extend(self.pop(&lane).map(|delivery| (lane.clone(), delivery)));
                    taken_from.push(lane);
                }
            }
        }
        // No lane is left that waits for its turn: what is still free goes to those that have more.
        while batch.len() < limit && !taken_from.is_empty() {
            taken_from.retain(|lane| match (batch.len() < limit).then(|| self.pop(lane)).flatten() {
                Some(delivery) => {
                    batch.push((lane.clone(), delivery));
                    true
                }
                None => false,
            });
        }
        batch
    }

    fn pop(&mut self, lane: &Lane) -> Option<Delivery> {
        let queue = self.queues.get_mut(lane)?;
        let delivery = queue.waiting.pop_front()?;
        queue.running += 1;
        Some(delivery)
    }

    /// One delivery of `lane` is finished; after the last one that was at work the lane is ready for more.
    pub(super) fn settled(&mut self, lane: Lane) {
        self.in_flight -= 1;
        if lane == Lane::Early {
            return;
        }
        let Some(queue) = self.queues.get_mut(&lane) else {
            self.counted -= 1;
            return;
        };
        if queue.len() <= self.room_per_lane {
            self.counted -= 1;
        }
        queue.running -= 1;
        if queue.len() == 0 {
            self.queues.remove(&lane);
        } else if queue.running == 0 {
            self.ready.push_back(Ready::Lane(lane));
        }
    }

    /// A delivery that is at work came before its predecessors and leaves `lane`, which goes on without it; answers with
    /// where it is now.
    pub(super) fn detach(&mut self, lane: Lane) -> Lane {
        self.settled(lane);
        self.in_flight += 1;
        Lane::Early
    }

    /// Taken and not begun, because another one of its lane is still at work: first in its lane again. Put back in the
    /// order opposite to the one they were taken in.
    pub(super) fn put_back(&mut self, lane: &Lane, delivery: Delivery) {
        match self.queues.get_mut(lane) {
            Some(queue) => {
                queue.running -= 1;
                queue.waiting.push_front(delivery);
            }
            None => self.ready.push_front(Ready::Alone(delivery)),
        }
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
