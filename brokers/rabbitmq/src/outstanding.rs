//! What a member was given and did not acknowledge yet.
//!
//! A delivery that is given back stays here until its delay is over and is then handed out again: the queue would
//! count it, and deliver it at once. It stays unacknowledged for the server all the while, so that it comes to another
//! member if this one ends.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::time::Instant;

/// What is needed to hand a message out again.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) partition: u32,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) payload: Bytes,
}

/// By delivery tag: the server numbers the deliveries of a channel.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    held: BTreeMap<u64, Held>,
    delayed: BTreeSet<(Instant, u64)>,
    /// Every tag up to this one has arrived. The queues of a channel share its numbers and are read side by side, so a
    /// number may arrive before a lower one.
    arrived: u64,
    early: BTreeSet<u64>,
}

/// An acknowledgement as it goes to the server; with everything before it if so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: u64,
    pub(crate) multiple: bool,
}

impl Outstanding {
    pub(crate) fn insert(&mut self, tag: u64, held: Held) {
        self.held.insert(tag, held);
        self.early.insert(tag);
        while self.early.remove(&(self.arrived + 1)) {
            self.arrived += 1;
        }
    }

    pub(crate) fn get(&self, tag: u64) -> Option<&Held> {
        self.held.get(&tag)
    }

    /// Gives `tag` back: it is due at `when`.
    pub(crate) fn delay(&mut self, tag: u64, when: Instant) {
        if self.held.contains_key(&tag) {
            self.delayed.insert((when, tag));
        }
    }

    /// When the next one that was given back is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(when, _)| *when)
    }

    /// Those that are due, in the order delivered.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some((when, tag)) = self.delayed.first().copied().filter(|(when, _)| *when <= now) {
            self.delayed.remove(&(when, tag));
            due.push(tag);
        }
        due.sort_unstable();
        due
    }

    /// Takes `tags` as finished and answers with the fewest acknowledgements that say so. An acknowledgement with
    /// everything before it must not cover what is open, nor what is still on its way to here.
    pub(crate) fn finish(&mut self, mut tags: Vec<u64>) -> Vec<Ack> {
        tags.retain(|tag| self.held.remove(tag).is_some());
        tags.sort_unstable();
        let open = self.held.first_key_value().map_or(u64::MAX, |(tag, _)| *tag).min(self.arrived + 1);
        let before = tags.partition_point(|tag| *tag < open);
        let prefix = before.checked_sub(1).map(|last| Ack { tag: tags[last], multiple: true });
        prefix.into_iter().chain(tags[before..].iter().map(|tag| Ack { tag: *tag, multiple: false })).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outstanding(tags: impl IntoIterator<Item = u64>) -> Outstanding {
        let mut outstanding = Outstanding::default();
        for tag in tags {
            let (routing_key, properties) = ("0".into(), BasicProperties::default());
            outstanding.insert(tag, Held { partition: 0, routing_key, properties, payload: Bytes::new() });
        }
        outstanding
    }

    #[test]
    fn a_finished_prefix_is_acknowledged_at_once_and_never_what_is_open() {
        let mut outstanding = outstanding(1..=6);
        let ack = |tag, multiple| Ack { tag, multiple };
        assert_eq!(outstanding.finish(vec![4, 2]), [ack(2, false), ack(4, false)]);
        assert_eq!(outstanding.finish(vec![1]), [ack(1, true)]);
        assert_eq!(outstanding.finish(vec![6, 3]), [ack(3, true), ack(6, false)]);
        assert_eq!(outstanding.finish(vec![3, 6]), []);
        assert_eq!(outstanding.finish(vec![5]), [ack(5, true)]);
    }

    #[test]
    fn what_has_not_arrived_yet_is_not_acknowledged_along() {
        let mut outstanding = outstanding([1, 3]);
        let ack = |tag, multiple| Ack { tag, multiple };
        assert_eq!(outstanding.finish(vec![1, 3]), [ack(1, true), ack(3, false)]);
    }

    #[test]
    fn what_was_given_back_is_due_once() {
        let mut outstanding = outstanding([1, 2]);
        let now = Instant::now();
        outstanding.delay(2, now);
        outstanding.delay(1, now + Duration::from_secs(60));
        outstanding.delay(9, now);
        assert_eq!(outstanding.take_due(now), [2]);
        assert_eq!(outstanding.take_due(now), [0; 0]);
        assert_eq!(outstanding.next_due(), Some(now + Duration::from_secs(60)));
    }
}
