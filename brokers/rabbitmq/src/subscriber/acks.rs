//! Acknowledgements as the server receives them, by delivery tag: the server numbers the deliveries of a channel.

use std::collections::BTreeSet;

/// The deliveries of one channel, as far as acknowledging them is concerned.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Every tag up to this one has arrived. The queues of a channel share its tags and are read side by side, so a tag
    /// may arrive before a lower one.
    arrived: u64,
    early: BTreeSet<u64>,
    /// Every tag up to this one is acknowledged.
    acknowledged: u64,
}

/// One `basic.ack`; with `multiple` it covers every lower tag as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: u64,
    pub(crate) multiple: bool,
}

impl Acks {
    pub(crate) fn arrived(&mut self, tag: u64) {
        self.early.insert(tag);
        while self.early.remove(&(self.arrived + 1)) {
            self.arrived += 1;
        }
    }

    /// Returns the fewest acknowledgements that cover `finished`. None with `multiple` covers an unfinished tag, or one
    /// that has not arrived here yet. A tag that such an acknowledgement has covered is not acknowledged again, which
    /// would close the channel.
    pub(crate) fn finish(&mut self, mut finished: Vec<u64>, first_unfinished: Option<u64>) -> Vec<Ack> {
        finished.retain(|tag| *tag > self.acknowledged);
        finished.sort_unstable();
        let open = first_unfinished.unwrap_or(u64::MAX).min(self.arrived + 1);
        let before = finished.partition_point(|tag| *tag < open);
        let prefix = before.checked_sub(1).map(|last| Ack { tag: finished[last], multiple: true });
        self.acknowledged = prefix.map_or(self.acknowledged, |ack| ack.tag);
        prefix.into_iter().chain(finished[before..].iter().map(|tag| Ack { tag: *tag, multiple: false })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(tags: impl IntoIterator<Item = u64>) -> Acks {
        let mut acks = Acks::default();
        tags.into_iter().for_each(|tag| acks.arrived(tag));
        acks
    }

    fn ack(tag: u64, multiple: bool) -> Ack {
        Ack { tag, multiple }
    }

    #[test]
    fn a_finished_prefix_is_one_ack_that_covers_nothing_unfinished() {
        let mut acks = arrived(1..=6);
        assert_eq!(acks.finish(vec![4, 2], Some(1)), [ack(2, false), ack(4, false)]);
        assert_eq!(acks.finish(vec![1], Some(3)), [ack(1, true)]);
        assert_eq!(acks.finish(vec![6, 3], Some(5)), [ack(3, true), ack(6, false)]);
        assert_eq!(acks.finish(vec![5], None), [ack(5, true)]);
    }

    #[test]
    fn a_tag_that_has_not_arrived_is_not_covered() {
        assert_eq!(arrived([1, 3]).finish(vec![1, 3], None), [ack(1, true), ack(3, false)]);
    }

    #[test]
    fn a_tag_that_was_covered_is_not_acknowledged_again() {
        let mut acks = arrived(1..=3);
        assert_eq!(acks.finish(vec![3], None), [ack(3, true)]);
        assert_eq!(acks.finish(vec![2], None), []);
    }
}
