//! Key lanes keep order: the deliveries of one lane run sequentially, different lanes run concurrently.
//!
//! A lane exists while it has deliveries. It is *ready* when deliveries wait and none runs. A batch takes from the
//! ready lanes round-robin, one of each before a second of any. So a lane with many deliveries is served no sooner than
//! one with few. Deliveries without order have no lane and never wait for each other.

use std::collections::{HashMap, VecDeque};

use landfall_core::Key;
use landfall_core::adapter::Delivery;

use crate::consume::options::{Options, Order};

/// The name of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    Key(Key),
    Partition(u32),
    /// No lane: the delivery has no order.
    Unordered,
    /// No lane: the delivery waits for its predecessors. It uses no capacity, which its predecessors may need to be
    /// received.
    Detached,
}

impl Lane {
    fn for_delivery(delivery: &Delivery, order: Order) -> Self {
        let key = || delivery.message.as_ref().ok().and_then(|message| message.key.clone());
        match order {
            Order::ByPartition => Lane::Partition(delivery.position.partition),
            Order::ByKey => key().map_or(Lane::Unordered, Lane::Key),
            Order::Unordered => Lane::Unordered,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Delivery>,
    /// In a batch, or isolated.
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
    Unordered(Delivery),
}

#[derive(Debug)]
pub(super) struct Lanes {
    order: Order,
    queues: HashMap<Lane, Queue>,
    ready: VecDeque<Ready>,
    /// Running or waiting.
    in_flight: usize,
    /// The same, counting at most `lane_capacity` of each lane.
    counted: usize,
    capacity: usize,
    lane_capacity: usize,
}

impl Lanes {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            order: options.order,
            queues: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            counted: 0,
            capacity: options.capacity(),
            lane_capacity: options.lane_capacity(),
        }
    }

    /// Whether another delivery may be received from the broker.
    pub(super) fn has_capacity(&self) -> bool {
        self.counted < self.capacity && self.in_flight < self.capacity.saturating_mul(Options::OVERFLOW_FACTOR)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The number of deliveries in the deepest lane, and in all lanes together.
    pub(super) fn depth(&self) -> (usize, usize) {
        (self.queues.values().map(Queue::len).max().unwrap_or(0), self.in_flight)
    }

    /// Queues a received delivery.
    pub(super) fn push(&mut self, delivery: Delivery) {
        self.in_flight += 1;
        let lane = Lane::for_delivery(&delivery, self.order);
        if lane == Lane::Unordered {
            self.counted += 1;
            self.ready.push_back(Ready::Unordered(delivery));
            return;
        }
        let queue = self.queues.entry(lane.clone()).or_default();
        if queue.len() == 0 {
            self.ready.push_back(Ready::Lane(lane));
        }
        if queue.len() < self.lane_capacity {
            self.counted += 1;
        }
        queue.waiting.push_back(delivery);
    }

    /// Takes at most `limit` deliveries that may run now, those of one lane in order.
    pub(super) fn take(&mut self, limit: usize) -> Vec<(Lane, Delivery)> {
        let mut batch = Vec::new();
        let mut taken_from: Vec<Lane> = Vec::new();
        while batch.len() < limit {
            match self.ready.pop_front() {
                None => break,
                Some(Ready::Unordered(delivery)) => batch.push((Lane::Unordered, delivery)),
                Some(Ready::Lane(lane)) => {
                    batch.extend(self.pop(&lane).map(|delivery| (lane.clone(), delivery)));
                    taken_from.push(lane);
                }
            }
        }
        // Every ready lane has been served once: fill up from the lanes that have more.
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

    /// Removes one finished delivery of `lane`. When none of the lane runs any more, the lane is ready again.
    pub(super) fn settled(&mut self, lane: Lane) {
        self.in_flight -= 1;
        if lane == Lane::Detached {
            return;
        }
        let Some(queue) = self.queues.get_mut(&lane) else {
            self.counted -= 1;
            return;
        };
        if queue.len() <= self.lane_capacity {
            self.counted -= 1;
        }
        queue.running -= 1;
        if queue.len() == 0 {
            self.queues.remove(&lane);
        } else if queue.running == 0 {
            self.ready.push_back(Ready::Lane(lane));
        }
    }

    /// Takes a running delivery that is early out of `lane`, which continues without it; returns its new lane.
    pub(super) fn detach(&mut self, lane: Lane) -> Lane {
        self.settled(lane);
        self.in_flight += 1;
        Lane::Detached
    }

    /// Returns a delivery that was taken but not attempted to the front of its lane. Several are put back in reverse
    /// order.
    pub(super) fn put_back(&mut self, lane: &Lane, delivery: Delivery) {
        match self.queues.get_mut(lane) {
            Some(queue) => {
                queue.running -= 1;
                queue.waiting.push_front(delivery);
            }
            None => self.ready.push_front(Ready::Unordered(delivery)),
        }
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
