//! One lane per key that has work: deliveries of a key run one after the other, lanes run side by side.
//!
//! A lane exists while one of its deliveries is running; those that arrive meanwhile queue in it. Deliveries without
//! a key (or that cannot be read) have no lane and wait for nobody.

use std::collections::{HashMap, VecDeque};

use landfall_core::{Delivery, Key};

/// Which lane a running delivery belongs to.
pub(super) type Lane = Option<Key>;

#[derive(Default)]
pub(super) struct Lanes {
    waiting: HashMap<Key, VecDeque<Delivery>>,
    in_flight: usize,
}

impl Lanes {
    /// Running or waiting.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes in a delivery; answers with it if it may run now.
    pub(super) fn arrived(&mut self, delivery: Delivery) -> Option<(Lane, Delivery)> {
        self.in_flight += 1;
        let Some(key) = delivery.message.as_ref().ok().and_then(|message| message.key.clone()) else {
            return Some((None, delivery));
        };
        match self.waiting.get_mut(&key) {
            Some(queue) => {
                queue.push_back(delivery);
                None
            }
            None => {
                self.waiting.insert(key.clone(), VecDeque::new());
                Some((Some(key), delivery))
            }
        }
    }

    /// The running delivery of `lane` is finished; answers with the one that may run next.
    pub(super) fn finished(&mut self, lane: Lane) -> Option<(Lane, Delivery)> {
        self.in_flight -= 1;
        let key = lane?;
        match self.waiting.get_mut(&key)?.pop_front() {
            Some(delivery) => Some((Some(key), delivery)),
            None => {
                self.waiting.remove(&key);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use landfall_core::{Acknowledge, Message, Position, Result, TopicName};

    use super::*;

    #[derive(Debug)]
    struct Nothing;

    #[async_trait]
    impl Acknowledge for Nothing {
        async fn ack(self: Box<Self>) -> Result<()> {
            Ok(())
        }
        async fn nack(self: Box<Self>, _: Duration) -> Result<()> {
            Ok(())
        }
    }

    fn delivery(key: Option<&str>, offset: u64) -> Delivery {
        let mut message = Message::new(TopicName::new("t").unwrap(), "");
        message.key = key.map(|key| Key::new(key).unwrap());
        Delivery::new(Ok(message), Position { partition: 0, offset }, Box::new(Nothing))
    }

    fn offset(started: Option<(Lane, Delivery)>) -> Option<u64> {
        started.map(|(_, delivery)| delivery.position.offset)
    }

    #[test]
    fn a_key_runs_one_at_a_time_in_order_and_others_do_not_wait_for_it() {
        let mut lanes = Lanes::default();
        let a = || Some(Key::new("a").unwrap());
        assert_eq!(offset(lanes.arrived(delivery(Some("a"), 1))), Some(1));
        assert_eq!(offset(lanes.arrived(delivery(Some("a"), 2))), None);
        assert_eq!(offset(lanes.arrived(delivery(Some("a"), 3))), None);
        assert_eq!(offset(lanes.arrived(delivery(Some("b"), 4))), Some(4));
        assert_eq!(offset(lanes.arrived(delivery(None, 5))), Some(5));
        assert_eq!(lanes.in_flight(), 5);

        assert_eq!(offset(lanes.finished(a())), Some(2));
        assert_eq!(offset(lanes.finished(a())), Some(3));
        assert_eq!(offset(lanes.finished(a())), None);
        assert_eq!(offset(lanes.finished(None)), None);
        assert_eq!(lanes.in_flight(), 1);
        assert_eq!(offset(lanes.arrived(delivery(Some("a"), 6))), Some(6), "an emptied lane starts afresh");
    }
}
