//! Which messages go into which call.
//!
//! A call takes ten messages, and SQS may accept some of them and not others. So that no message of a key is accepted
//! after one that was not, a call never has two of the same key, and a key's next message goes out only when the one
//! before was accepted. Keys go side by side: with ten of them or more every call is full.

use std::collections::{HashMap, HashSet, VecDeque};

use landfall_core::{ErrorCode, Key, Message, Outcome};

use crate::wire::{self, Encoded};

/// What SQS takes in a call.
pub(crate) const CALL_ENTRIES: usize = 10;

/// One topic's part of a batch.
pub(crate) struct Plan<'a> {
    batch: &'a [Message],
    limit_bytes: usize,
    lanes: Vec<Lane>,
    /// Lanes with something to send and nothing under way.
    ready: VecDeque<usize>,
    /// Without order a key's messages go out side by side; still none of them goes out once one was not accepted.
    held_back: HashSet<&'a Key>,
    outcomes: Vec<(usize, Outcome)>,
}

#[derive(Default)]
struct Lane {
    /// Places in the batch.
    waiting: VecDeque<usize>,
    /// The first of them, if it was looked at and found no room in a call.
    encoded: Option<Encoded>,
}

/// One message of a call.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) place: usize,
    lane: usize,
    pub(crate) encoded: Encoded,
}

impl<'a> Plan<'a> {
    /// Sends the messages of `batch` at `places`; without order each is a lane of its own.
    pub(crate) fn new(batch: &'a [Message], places: &[usize], ordered: bool, limit_bytes: usize) -> Self {
        let mut lanes: Vec<Lane> = Vec::new();
        let mut of_key: HashMap<&Key, usize> = HashMap::new();
        for &place in places {
            let lane = match batch[place].key.as_ref().filter(|_| ordered) {
                Some(key) => *of_key.entry(key).or_insert(lanes.len()),
                None => lanes.len(),
            };
            if lane == lanes.len() {
                lanes.push(Lane::default());
            }
            lanes[lane].waiting.push_back(place);
        }
        let ready = (0..lanes.len()).collect();
        Self { batch, limit_bytes, lanes, ready, held_back: HashSet::new(), outcomes: Vec::new() }
    }

    /// The next call; `None` if everything that is left waits for a call that is under way.
    pub(crate) fn call(&mut self) -> Option<Vec<Entry>> {
        let (mut entries, mut bytes) = (Vec::with_capacity(CALL_ENTRIES), 0);
        while entries.len() < CALL_ENTRIES {
            let Some(number) = self.ready.pop_front() else { break };
            let lane = &mut self.lanes[number];
            let Some(place) = lane.waiting.pop_front() else { continue };
            if self.batch[place].key.as_ref().is_some_and(|key| self.held_back.contains(key)) {
                self.outcomes.push((place, Outcome::behind_predecessor()));
                continue;
            }
            let encoded = lane.encoded.take().unwrap_or_else(|| wire::encode(&self.batch[place]));
            let size = encoded.bytes();
            if size > self.limit_bytes {
                let limit = self.limit_bytes;
                let reason = format!("the message is {size} bytes with its attributes, and {limit} are taken");
                self.settle_lane(number, place, Outcome::refuse(ErrorCode::TOO_LARGE, reason));
            } else if bytes + size > self.limit_bytes {
                lane.waiting.push_front(place);
                lane.encoded = Some(encoded);
                self.ready.push_front(number);
                break;
            } else {
                bytes += size;
                entries.push(Entry { place, lane: number, encoded });
            }
        }
        (!entries.is_empty()).then_some(entries)
    }

    /// What became of an entry. After one that was not accepted the rest of its lane is not sent.
    pub(crate) fn settle(&mut self, entry: &Entry, outcome: Outcome) {
        self.settle_lane(entry.lane, entry.place, outcome);
    }

    fn settle_lane(&mut self, number: usize, place: usize, outcome: Outcome) {
        let lane = &mut self.lanes[number];
        match outcome.is_accepted() {
            true if lane.waiting.is_empty() => {}
            true => self.ready.push_back(number),
            false => {
                let behind = lane.waiting.drain(..).map(|place| (place, Outcome::behind_predecessor()));
                self.outcomes.extend(behind);
                self.held_back.extend(&self.batch[place].key);
            }
        }
        self.outcomes.push((place, outcome));
    }

    /// One outcome for each place, in no order.
    pub(crate) fn outcomes(self) -> Vec<(usize, Outcome)> {
        self.outcomes
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{Position, TopicName};

    use super::*;

    fn message(key: Option<&str>, bytes: usize) -> Message {
        let mut message = Message::new(TopicName::new("orders").unwrap(), "x".repeat(bytes));
        message.key = key.map(|key| Key::new(key).unwrap());
        message
    }

    fn places(call: &[Entry]) -> Vec<usize> {
        call.iter().map(|entry| entry.place).collect()
    }

    fn accepted() -> Outcome {
        Outcome::Accepted(Position { partition: 0, offset: 0 })
    }

    #[test]
    fn a_call_has_one_message_of_a_key_and_the_next_waits_for_its_outcome() {
        let batch = [message(Some("a"), 1), message(Some("a"), 1), message(Some("b"), 1), message(None, 1)];
        let mut plan = Plan::new(&batch, &[0, 1, 2, 3], true, 10_000);
        let call = plan.call().unwrap();
        assert_eq!(places(&call), [0, 2, 3]);
        assert!(plan.call().is_none());
        plan.settle(&call[0], accepted());
        assert_eq!(places(&plan.call().unwrap()), [1]);
    }

    #[test]
    fn what_was_not_accepted_holds_back_its_key_and_no_other() {
        let batch = [message(Some("a"), 1), message(Some("a"), 1), message(Some("b"), 1), message(Some("b"), 1)];
        let mut plan = Plan::new(&batch, &[0, 1, 2, 3], true, 10_000);
        let call = plan.call().unwrap();
        plan.settle(&call[0], Outcome::Unknown("cut".into()));
        plan.settle(&call[1], accepted());
        let next = plan.call().unwrap();
        assert_eq!(places(&next), [3]);
        plan.settle(&next[0], accepted());
        let mut outcomes = plan.outcomes();
        outcomes.sort_by_key(|(place, _)| *place);
        let found: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(found, [Outcome::Unknown("cut".into()), Outcome::behind_predecessor(), accepted(), accepted()]);
    }

    #[test]
    fn calls_are_full_and_not_too_large_and_what_never_fits_is_refused() {
        let mut batch: Vec<_> = (0..12).map(|_| message(None, 10)).collect();
        batch.extend([message(None, 6_000), message(None, 6_000), message(Some("a"), 20_000), message(Some("a"), 1)]);
        let all: Vec<_> = (0..batch.len()).collect();
        let mut plan = Plan::new(&batch, &all, true, 10_000);
        let calls: Vec<_> = std::iter::from_fn(|| plan.call()).map(|call| places(&call)).collect();
        assert_eq!(calls, [(0..10).collect::<Vec<_>>(), vec![10, 11, 12], vec![13]]);
        let refused = plan.outcomes();
        assert_eq!(refused.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [15, 14]);
        assert_eq!(refused[0].1, Outcome::behind_predecessor());
    }

    #[test]
    fn without_order_the_messages_of_a_key_go_side_by_side() {
        let batch: Vec<_> = (0..3).map(|_| message(Some("a"), 1)).collect();
        assert_eq!(places(&Plan::new(&batch, &[0, 1, 2], false, 10_000).call().unwrap()), [0, 1, 2]);
        let batch = [message(Some("a"), 20_000), message(Some("a"), 1), message(Some("b"), 1)];
        let mut plan = Plan::new(&batch, &[0, 1, 2], false, 10_000);
        assert_eq!(places(&plan.call().unwrap()), [2], "what was refused before holds back its key here too");
        assert_eq!(plan.outcomes()[1], (1, Outcome::behind_predecessor()));
    }
}
