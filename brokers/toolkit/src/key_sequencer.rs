//! Publishing a batch in the order of its keys.

use std::collections::{HashMap, HashSet, VecDeque};

use landfall_core::{Key, Message, Outcome, TopicName};

/// How many messages of one key may be in flight at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipelining {
    /// One: the next message of a key is sent when the one before was accepted. For brokers that may refuse a message
    /// and accept its successor.
    OnePerKey,
    /// Any number, sent in order: the broker keeps the order or refuses. A message that it accepted behind one that it
    /// did not is reported as [`Outcome::Unknown`], so that it is sent again behind its predecessor.
    InOrder,
    /// Any number, for topics without order. Behind a message that was not accepted nothing more of its key is sent.
    Unordered,
}

/// Decides which messages of a batch may be sent now, and collects one outcome per message.
///
/// Messages are identified by their index in the batch. Those without a key have no order. A key is a key of one topic:
/// the same key in another topic is another key.
///
/// * [`take_next`](Self::take_next) and [`take_ready`](Self::take_ready) hand out messages to send, in key order.
/// * [`settle`](Self::settle) records an outcome. Behind one that is not accepted the rest of its key is not handed
///   out: it becomes [`Outcome::behind_predecessor`].
/// * [`into_outcomes`](Self::into_outcomes) returns the outcomes in the order of the batch.
///
/// Every step is constant-time, except `take_ready`, which looks at each message that is ready.
#[derive(Debug)]
pub struct KeySequencer<'a> {
    pipelining: Pipelining,
    messages: Vec<&'a Message>,
    states: Vec<State>,
    /// The next message of the same key; only with [`Pipelining::OnePerKey`].
    successors: Vec<Option<usize>>,
    /// What may be sent as far as its key is concerned. With [`Pipelining::OnePerKey`] the first unsent message of each
    /// key whose predecessor was accepted, otherwise everything unsent.
    ready: VecDeque<usize>,
    /// Keys of which a message was not accepted, with the first of them.
    failed: HashMap<TopicKey<'a>, usize>,
    in_flight: usize,
}

type TopicKey<'a> = (&'a TopicName, &'a Key);

#[derive(Debug, Clone, PartialEq)]
enum State {
    Unsent,
    InFlight,
    Settled(Outcome),
}

impl<'a> KeySequencer<'a> {
    pub fn new(batch: impl IntoIterator<Item = &'a Message>, pipelining: Pipelining) -> Self {
        let messages: Vec<&'a Message> = batch.into_iter().collect();
        let states = vec![State::Unsent; messages.len()];
        let (mut ready, mut successors) = (VecDeque::with_capacity(messages.len()), Vec::new());
        match pipelining {
            Pipelining::InOrder | Pipelining::Unordered => ready.extend(0..messages.len()),
            Pipelining::OnePerKey => {
                successors.resize(messages.len(), None);
                let mut last_of: HashMap<TopicKey<'a>, usize> = HashMap::with_capacity(messages.len());
                for (index, message) in messages.iter().enumerate() {
                    match key(message).and_then(|key| last_of.insert(key, index)) {
                        Some(predecessor) => successors[predecessor] = Some(index),
                        None => ready.push_back(index),
                    }
                }
            }
        }
        Self { pipelining, messages, states, successors, ready, failed: HashMap::new(), in_flight: 0 }
    }

    /// The number of messages in the batch.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn message(&self, index: usize) -> &'a Message {
        self.messages[index]
    }

    /// The number of messages handed out and not settled.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether a message was handed out and is not settled.
    pub fn is_in_flight(&self, index: usize) -> bool {
        self.states.get(index) == Some(&State::InFlight)
    }

    /// The messages that were neither handed out nor settled.
    pub fn unsent(&self) -> impl Iterator<Item = &'a Message> {
        let each = self.messages.iter().zip(&self.states);
        each.filter(|(_, state)| **state == State::Unsent).map(|(message, _)| *message)
    }

    /// Hands out the next message; `None` if everything unsent waits for a message in flight.
    pub fn take_next(&mut self) -> Option<usize> {
        while let Some(index) = self.ready.pop_front() {
            if self.hand_out(index) {
                return Some(index);
            }
        }
        None
    }

    /// Hands out the messages that may be sent now and that `admit` accepts. `admit` sees them in order. If it declines
    /// one, the rest of that key stays behind as well; they are all offered again by the next call.
    pub fn take_ready(&mut self, mut admit: impl FnMut(&'a Message) -> bool) -> Vec<usize> {
        let mut taken = Vec::with_capacity(self.ready.len());
        let mut declined: HashSet<TopicKey<'a>> = HashSet::new();
        for index in std::mem::take(&mut self.ready) {
            if self.is_blocked(index) {
                self.states[index] = State::Settled(Outcome::behind_predecessor());
                continue;
            }
            let key = key(self.messages[index]);
            if key.is_some_and(|key| declined.contains(&key)) {
                self.ready.push_back(index);
            } else if admit(self.messages[index]) {
                self.hand_out(index);
                taken.push(index);
            } else {
                declined.extend(key);
                self.ready.push_back(index);
            }
        }
        taken
    }

    /// Takes back a message that was handed out and not sent: it is handed out first by the next call. Of several,
    /// the last one that was handed out must be put back first.
    pub fn put_back(&mut self, index: usize) {
        if self.is_in_flight(index) {
            self.in_flight -= 1;
            self.states[index] = State::Unsent;
            self.ready.push_front(index);
        }
    }

    /// Records the outcome of a message that was handed out; any other is ignored.
    pub fn settle(&mut self, index: usize, outcome: Outcome) {
        if self.is_in_flight(index) {
            self.in_flight -= 1;
            self.record(index, outcome);
        }
    }

    /// Records the same outcome for every message in flight.
    pub fn settle_in_flight(&mut self, outcome: &Outcome) {
        for index in 0..self.messages.len() {
            if self.is_in_flight(index) {
                self.settle(index, outcome.clone());
            }
        }
    }

    /// Goes through the unsent messages in order and settles those for which `refuse` returns an outcome. It is not
    /// called for the rest of a key behind a message that was not accepted.
    pub fn refuse_unsent(&mut self, mut refuse: impl FnMut(&'a Message) -> Option<Outcome>) {
        for index in 0..self.messages.len() {
            if self.states[index] == State::Unsent {
                if self.is_blocked(index) {
                    self.states[index] = State::Settled(Outcome::behind_predecessor());
                } else if let Some(outcome) = refuse(self.messages[index]) {
                    self.record(index, outcome);
                }
            }
        }
        let states = &self.states;
        self.ready.retain(|index| states[*index] == State::Unsent);
    }

    /// Gives every unsent message the same outcome, because nothing more can be sent. Those behind a message that was
    /// not accepted are [`Outcome::behind_predecessor`].
    pub fn give_up_unsent(&mut self, outcome: &Outcome) {
        self.ready.clear();
        for index in 0..self.messages.len() {
            if self.states[index] == State::Unsent {
                let is_blocked = self.is_blocked(index);
                let outcome = if is_blocked { Outcome::behind_predecessor() } else { outcome.clone() };
                self.states[index] = State::Settled(outcome);
            }
        }
    }

    /// One outcome per message, in the order of the batch. A message that was never settled is unknown if it is in
    /// flight, and refused for now if it is unsent.
    pub fn into_outcomes(mut self) -> Vec<Outcome> {
        self.settle_in_flight(&Outcome::Unknown("the broker did not answer".into()));
        self.give_up_unsent(&Outcome::retry_later(landfall_core::ErrorCode::UNAVAILABLE, "not sent"));
        let unsettled = || Outcome::Unknown("no outcome was recorded".into());
        let outcomes = self.states.into_iter().map(|state| match state {
            State::Settled(outcome) => outcome,
            State::Unsent | State::InFlight => unsettled(),
        });
        let mut outcomes: Vec<Outcome> = outcomes.collect();
        if self.pipelining == Pipelining::InOrder && !self.failed.is_empty() {
            demote_overtakers(&self.messages, &mut outcomes);
        }
        outcomes
    }

    /// Marks a ready message as handed out; settles it instead if its key is blocked.
    fn hand_out(&mut self, index: usize) -> bool {
        if self.is_blocked(index) {
            self.states[index] = State::Settled(Outcome::behind_predecessor());
            return false;
        }
        self.states[index] = State::InFlight;
        self.in_flight += 1;
        true
    }

    fn record(&mut self, index: usize, outcome: Outcome) {
        let is_accepted = outcome.is_accepted();
        self.states[index] = State::Settled(outcome);
        let mut successor = self.successors.get(index).copied().flatten();
        if is_accepted {
            self.ready.extend(successor.filter(|successor| self.states[*successor] == State::Unsent));
            return;
        }
        if let Some(key) = key(self.messages[index]) {
            self.failed.entry(key).and_modify(|first| *first = index.min(*first)).or_insert(index);
        }
        while let Some(index) = successor {
            if self.states[index] == State::Unsent {
                self.states[index] = State::Settled(Outcome::behind_predecessor());
            }
            successor = self.successors[index];
        }
    }

    /// Whether a predecessor was not accepted.
    fn is_blocked(&self, index: usize) -> bool {
        let first_failed = || self.failed.get(&key(self.messages[index])?).copied();
        !self.failed.is_empty() && first_failed().is_some_and(|first| first < index)
    }
}

fn key(message: &Message) -> Option<TopicKey<'_>> {
    message.key.as_ref().map(|key| (&message.topic, key))
}

/// Reports every accepted message behind one of its key that was not accepted as unknown.
fn demote_overtakers(messages: &[&Message], outcomes: &mut [Outcome]) {
    let mut failed = HashSet::new();
    for (message, outcome) in messages.iter().zip(outcomes) {
        let Some(key) = key(message) else { continue };
        if !outcome.is_accepted() {
            failed.insert(key);
        } else if failed.contains(&key) {
            let reason = "an earlier message of the same key was not accepted, and this one was";
            *outcome = Outcome::Unknown(reason.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{ErrorCode, Position};
    use proptest::prelude::*;

    use super::*;

    fn message(topic: &str, key: Option<&str>) -> Message {
        let message = Message::new(TopicName::new(topic).unwrap(), "x");
        key.map_or(message.clone(), |key| message.with_key(Key::new(key).unwrap()))
    }

    fn keyed(keys: &[&str]) -> Vec<Message> {
        keys.iter().map(|key| message("orders", Some(key))).collect()
    }

    fn accepted() -> Outcome {
        Outcome::Accepted(Position { partition: 0, offset: 0 })
    }

    fn refused() -> Outcome {
        Outcome::retry_later(ErrorCode::STORAGE_FULL, "full")
    }

    #[derive(Debug, Clone)]
    enum Action {
        Next,
        /// Admits a message by a bit of this number.
        TakeReady(u32),
        /// The message with this index among those in flight.
        Settle(usize, BrokerReply),
        PutBackLast,
        RefuseUnsent(u32),
    }

    #[derive(Debug, Clone, Copy)]
    enum BrokerReply {
        Accepted,
        Refused,
        Unknown,
    }

    impl BrokerReply {
        fn outcome(self) -> Outcome {
            match self {
                BrokerReply::Accepted => accepted(),
                BrokerReply::Refused => refused(),
                BrokerReply::Unknown => Outcome::Unknown("lost".into()),
            }
        }
    }

    fn any_reply() -> impl Strategy<Value = BrokerReply> {
        prop_oneof![8 => Just(BrokerReply::Accepted), 1 => Just(BrokerReply::Refused), 1 => Just(BrokerReply::Unknown)]
    }

    fn any_action() -> impl Strategy<Value = Action> {
        prop_oneof![
            8 => Just(Action::Next),
            4 => any::<u32>().prop_map(Action::TakeReady),
            10 => (0..100_usize, any_reply()).prop_map(|(index, reply)| Action::Settle(index, reply)),
            1 => Just(Action::PutBackLast),
            // Seldom, and few of them: most bits are zero.
            1 => (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(a, b, c)| Action::RefuseUnsent(a & b & c)),
        ]
    }

    fn any_pipelining() -> impl Strategy<Value = Pipelining> {
        prop_oneof![Just(Pipelining::OnePerKey), Just(Pipelining::InOrder), Just(Pipelining::Unordered)]
    }

    fn any_batch() -> impl Strategy<Value = Vec<Message>> {
        let topic = prop_oneof![3 => Just("orders"), 1 => Just("stock")];
        let key = prop_oneof![3 => Just(Some("a")), 2 => Just(Some("b")), 1 => Just(Some("c")), 1 => Just(None)];
        proptest::collection::vec((topic, key, 0..32_u8), 0..20).prop_map(|batch| {
            let with_bit = |(topic, key, bit)| Message { payload: vec![bit].into(), ..message(topic, key) };
            batch.into_iter().map(with_bit).collect()
        })
    }

    /// What is known of each message, looked up from the beginning for each question.
    struct Model<'a> {
        batch: &'a [Message],
        pipelining: Pipelining,
        /// In flight, in the order handed out.
        in_flight: Vec<usize>,
        settled: Vec<Option<Outcome>>,
    }

    impl Model<'_> {
        fn predecessors(&self, index: usize) -> Vec<usize> {
            (0..index).filter(|other| self.is_of_same_key(index, *other)).collect()
        }

        fn is_unsent(&self, index: usize) -> bool {
            self.settled[index].is_none() && !self.in_flight.contains(&index)
        }

        fn is_blocked(&self, index: usize) -> bool {
            let failed = |other: &usize| self.settled[*other].as_ref().is_some_and(|outcome| !outcome.is_accepted());
            self.predecessors(index).iter().any(failed)
        }

        fn is_of_same_key(&self, index: usize, other: usize) -> bool {
            let (one, other) = (&self.batch[index], &self.batch[other]);
            one.key.is_some() && (&one.topic, &one.key) == (&other.topic, &other.key)
        }

        /// Whether it may be handed out when nothing else is handed out before it.
        fn may_go(&self, index: usize) -> bool {
            let has_gone = |other: &usize| match self.pipelining {
                Pipelining::OnePerKey => self.settled[*other].as_ref().is_some_and(Outcome::is_accepted),
                _ => !self.is_unsent(*other),
            };
            self.is_unsent(index) && !self.is_blocked(index) && self.predecessors(index).iter().all(has_gone)
        }

        /// What `take_ready` hands out: each in order, as if those before it were on their way already.
        fn take_ready(&mut self, admit: impl Fn(&Message) -> bool) -> Vec<usize> {
            let mut taken = Vec::new();
            for index in 0..self.batch.len() {
                if self.may_go(index) && admit(&self.batch[index]) {
                    self.in_flight.push(index);
                    taken.push(index);
                }
            }
            taken
        }
    }

    fn bit(mask: u32, message: &Message) -> bool {
        mask & (1 << message.payload[0]) != 0
    }

    proptest! {
        #[test]
        fn nothing_is_sent_or_accepted_behind_a_failed_predecessor(
            batch in any_batch(),
            pipelining in any_pipelining(),
            actions in proptest::collection::vec(any_action(), 0..120),
        ) {
            let mut sequencer = KeySequencer::new(&batch, pipelining);
            let settled = vec![None; batch.len()];
            let mut model = Model { batch: &batch, pipelining, in_flight: Vec::new(), settled };
            let mut sent = vec![false; batch.len()];
            // At last everything that may be sent is sent and accepted.
            let last = [Action::TakeReady(u32::MAX), Action::Settle(0, BrokerReply::Accepted)];
            for action in actions.into_iter().chain(std::iter::repeat_n(last, 2 * batch.len() + 2).flatten()) {
                match action {
                    Action::Next => match sequencer.take_next() {
                        Some(index) => {
                            prop_assert!(model.may_go(index), "{}", index);
                            model.in_flight.push(index);
                        }
                        None => prop_assert!(!(0..batch.len()).any(|index| model.may_go(index))),
                    },
                    Action::TakeReady(mask) => {
                        let mut taken = sequencer.take_ready(|message| bit(mask, message));
                        for pair in taken.windows(2) {
                            prop_assert!(!model.is_of_same_key(pair[0], pair[1]) || pair[0] < pair[1]);
                        }
                        taken.sort_unstable();
                        prop_assert_eq!(taken, model.take_ready(|message| bit(mask, message)));
                    }
                    Action::Settle(..) | Action::PutBackLast if model.in_flight.is_empty() => {}
                    Action::Settle(place, answer) => {
                        let index = model.in_flight.remove(place % model.in_flight.len());
                        sent[index] = true;
                        sequencer.settle(index, answer.outcome());
                        sequencer.settle(index, refused());
                        model.settled[index] = Some(answer.outcome());
                    }
                    Action::PutBackLast => {
                        let index = model.in_flight.pop().unwrap();
                        sequencer.put_back(index);
                    }
                    Action::RefuseUnsent(mask) => {
                        sequencer.refuse_unsent(|message| bit(mask, message).then(refused));
                        for (index, message) in batch.iter().enumerate() {
                            if model.is_unsent(index) && !model.is_blocked(index) && bit(mask, message) {
                                model.settled[index] = Some(refused());
                            }
                        }
                    }
                }
                prop_assert_eq!(sequencer.in_flight(), model.in_flight.len());
                for index in 0..batch.len() {
                    prop_assert_eq!(sequencer.is_in_flight(index), model.in_flight.contains(&index));
                }
            }
            let outcomes = sequencer.into_outcomes();
            prop_assert_eq!(outcomes.len(), batch.len());
            for (index, outcome) in outcomes.iter().enumerate() {
                let failed = model.predecessors(index).into_iter().any(|before| !outcomes[before].is_accepted());
                match &model.settled[index] {
                    Some(Outcome::Accepted(_)) if failed && pipelining != Pipelining::Unordered => {
                        prop_assert!(matches!(outcome, Outcome::Unknown(_)), "{:?}", outcome);
                        prop_assert_eq!(pipelining, Pipelining::InOrder);
                    }
                    Some(settled) => prop_assert_eq!(settled, outcome),
                    // The drain settles everything that may be sent, so it waits behind a failure.
                    None => {
                        prop_assert!(model.is_blocked(index) && !sent[index]);
                        prop_assert_eq!(outcome, &Outcome::behind_predecessor());
                    }
                }
            }
        }
    }

    #[test]
    fn one_message_of_a_key_is_in_flight_and_the_next_waits_for_its_outcome() {
        let batch = keyed(&["a", "a", "b"]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::OnePerKey);
        assert_eq!(sequencer.take_ready(|_| true), [0, 2]);
        assert_eq!(sequencer.take_next(), None);
        sequencer.settle(0, accepted());
        assert_eq!(sequencer.take_next(), Some(1));
    }

    #[test]
    fn a_failure_holds_back_its_key_and_no_other() {
        let batch = keyed(&["a", "a", "b", "b"]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::OnePerKey);
        sequencer.take_ready(|_| true);
        sequencer.settle(0, Outcome::Unknown("cut".into()));
        sequencer.settle(2, accepted());
        assert_eq!(sequencer.take_next(), Some(3));
        sequencer.settle(3, accepted());
        let expected = [Outcome::Unknown("cut".into()), Outcome::behind_predecessor(), accepted(), accepted()];
        assert_eq!(sequencer.into_outcomes(), expected);
    }

    #[test]
    fn an_accepted_message_behind_a_refused_one_is_unknown() {
        let batch = keyed(&["a", "a", "b"]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::InOrder);
        assert_eq!(sequencer.take_ready(|_| true), [0, 1, 2]);
        sequencer.settle(0, refused());
        sequencer.settle(1, accepted());
        sequencer.settle(2, accepted());
        let outcomes = sequencer.into_outcomes();
        assert!(matches!(outcomes[1], Outcome::Unknown(_)));
        assert_eq!(outcomes[2], accepted());
    }

    #[test]
    fn without_order_an_accepted_message_stays_accepted() {
        let batch = keyed(&["a", "a", "a"]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::Unordered);
        let both = [sequencer.take_next(), sequencer.take_next()];
        assert_eq!(both, [Some(0), Some(1)]);
        sequencer.settle(0, refused());
        sequencer.settle(1, accepted());
        assert_eq!(sequencer.take_next(), None, "nothing more of the key is sent");
        assert_eq!(sequencer.into_outcomes(), [refused(), accepted(), Outcome::behind_predecessor()]);
    }

    #[test]
    fn what_could_not_be_sent_gets_one_outcome() {
        let batch = keyed(&["a", "a", "b", "b"]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::OnePerKey);
        assert_eq!(sequencer.take_next(), Some(0));
        sequencer.settle(0, refused());
        let unavailable = Outcome::retry_later(ErrorCode::UNAVAILABLE, "gone");
        sequencer.give_up_unsent(&unavailable);
        let expected = [refused(), Outcome::behind_predecessor(), unavailable.clone(), unavailable];
        assert_eq!(sequencer.into_outcomes(), expected);
    }
}
