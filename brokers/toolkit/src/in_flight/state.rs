//! What [`InFlight`](super::InFlight) keeps behind its lock. Pure: the caller passes the time.

use std::collections::{BTreeMap, VecDeque};

use landfall_core::Error;
use tokio::time::Instant;

use super::offsets::Offsets;
use super::{InFlightMessage, Revoked};

#[derive(Debug)]
pub(super) struct State<O, T> {
    partitions: BTreeMap<u32, Partition<O>>,
    generations: u64,
    /// Never delivered, in the order of arrival.
    fresh: VecDeque<InFlightMessage<O, T>>,
    /// To be redelivered now.
    due: BTreeMap<(u32, O), InFlightMessage<O, T>>,
    /// To be redelivered later.
    delayed: BTreeMap<(Instant, u32, O), InFlightMessage<O, T>>,
    /// Over all partitions.
    unfinished: usize,
    pub(super) failure: Option<Error>,
    is_closed: bool,
}

/// One partition in one generation.
#[derive(Debug)]
pub(super) struct Partition<O> {
    generation: u64,
    pub(super) unfinished: Offsets<O>,
    /// The lowest offset that was removed unfinished.
    abandoned: Option<O>,
    is_draining: bool,
}

#[derive(Debug)]
pub(super) enum Next<O, T> {
    Message(InFlightMessage<O, T>),
    /// Nothing now; the first redelivery is due then.
    Empty {
        due: Option<Instant>,
    },
    Failed(Error),
    Closed,
}

impl<O: Ord + Copy, T> Default for State<O, T> {
    fn default() -> Self {
        Self {
            partitions: BTreeMap::new(),
            generations: 0,
            fresh: VecDeque::new(),
            due: BTreeMap::new(),
            delayed: BTreeMap::new(),
            unfinished: 0,
            failure: None,
            is_closed: false,
        }
    }
}

impl<O: Ord + Copy> Partition<O> {
    pub(super) fn first_unfinished(&self) -> Option<O> {
        self.unfinished.first().into_iter().chain(self.abandoned).min()
    }

    /// Removes a message that is not finished.
    fn abandon(&mut self, offset: O) {
        self.unfinished.remove(offset);
        self.abandoned = self.abandoned.into_iter().chain([offset]).min();
    }
}

impl<O: Ord + Copy, T> State<O, T> {
    pub(super) fn assign(&mut self, partition: u32) -> u64 {
        self.revoke(partition);
        self.generations += 1;
        let generation = self.generations;
        let unfinished = Offsets::default();
        let new = Partition { generation, unfinished, abandoned: None, is_draining: false };
        self.partitions.insert(partition, new);
        generation
    }

    pub(super) fn revoke(&mut self, partition: u32) -> Revoked<O> {
        let Some(revoked) = self.partitions.remove(&partition) else {
            return Revoked { first_unfinished: None, in_flight: 0 };
        };
        let in_flight = revoked.unfinished.len();
        self.unfinished -= in_flight;
        self.take_waiting(|message| message.partition == partition);
        Revoked { first_unfinished: revoked.first_unfinished(), in_flight }
    }

    pub(super) fn drain(&mut self, partition: u32) {
        if let Some(draining) = self.partitions.get_mut(&partition) {
            draining.is_draining = true;
            self.remove_waiting(|message| message.partition == partition);
        }
    }

    /// Whether the message was added.
    pub(super) fn arrive(&mut self, partition: u32, offset: O, content: T) -> bool {
        let assigned = self.partitions.get_mut(&partition).filter(|assigned| !assigned.is_draining);
        let Some(assigned) = assigned.filter(|_| !self.is_closed) else { return false };
        if !assigned.unfinished.insert(offset) {
            return false;
        }
        let generation = assigned.generation;
        self.fresh.push_back(InFlightMessage { partition, offset, content, generation });
        self.unfinished += 1;
        true
    }

    /// Reads the clock only if a message was given back, which is rare.
    pub(super) fn take(&mut self, now: impl FnOnce() -> Instant) -> Next<O, T> {
        if let Some(error) = self.failure.take() {
            return Next::Failed(error);
        }
        if !self.delayed.is_empty() {
            let now = now();
            while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
                let message = first.remove();
                self.due.insert((message.partition, message.offset), message);
            }
        }
        let redelivered = self.due.pop_first().map(|(_, message)| message);
        match redelivered.or_else(|| self.fresh.pop_front()) {
            Some(message) => Next::Message(message),
            None if self.is_closed => Next::Closed,
            None => Next::Empty { due: self.next_due() },
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, ..), _)| *due)
    }

    /// How many are in flight afterwards; `None` if the message belongs to an earlier generation.
    pub(super) fn finish<U>(&mut self, message: &InFlightMessage<O, U>) -> Option<usize> {
        if !self.current(message)?.unfinished.remove(message.offset) {
            return None;
        }
        self.unfinished -= 1;
        Some(self.unfinished)
    }

    pub(super) fn give_back(&mut self, message: InFlightMessage<O, T>, due: Instant) {
        let is_closed = self.is_closed;
        let current = self.current(&message).filter(|current| current.unfinished.contains(message.offset));
        let Some(current) = current else { return };
        if current.is_draining || is_closed {
            current.abandon(message.offset);
            self.unfinished -= 1;
        } else {
            self.delayed.insert((due, message.partition, message.offset), message);
        }
    }

    /// Removes messages that are not with the consumer; they are no longer in flight.
    pub(super) fn remove_waiting(
        &mut self,
        matches: impl Fn(&InFlightMessage<O, T>) -> bool,
    ) -> Vec<InFlightMessage<O, T>> {
        let removed = self.take_waiting(matches);
        for message in &removed {
            if let Some(current) = self.current(message) {
                current.abandon(message.offset);
                self.unfinished -= 1;
            }
        }
        removed
    }

    fn take_waiting(&mut self, matches: impl Fn(&InFlightMessage<O, T>) -> bool) -> Vec<InFlightMessage<O, T>> {
        let mut taken: Vec<_> =
            self.due.extract_if(.., |_, message| matches(message)).map(|(_, taken)| taken).collect();
        taken.extend(self.delayed.extract_if(.., |_, message| matches(message)).map(|(_, taken)| taken));
        let (waiting, kept) = std::mem::take(&mut self.fresh).into_iter().partition(|message| matches(message));
        self.fresh = kept;
        let waiting: VecDeque<_> = waiting;
        taken.extend(waiting);
        taken
    }

    pub(super) fn close(&mut self) -> Vec<InFlightMessage<O, T>> {
        self.is_closed = true;
        self.remove_waiting(|_| true)
    }

    pub(super) fn unfinished(&self) -> usize {
        self.unfinished
    }

    pub(super) fn waiting(&self) -> usize {
        self.fresh.len()
    }

    pub(super) fn partition(&self, partition: u32) -> Option<&Partition<O>> {
        self.partitions.get(&partition)
    }

    pub(super) fn is_current(&self, message: &InFlightMessage<O, T>) -> bool {
        self.partition(message.partition).is_some_and(|current| current.generation == message.generation)
    }

    fn current<U>(&mut self, message: &InFlightMessage<O, U>) -> Option<&mut Partition<O>> {
        self.partitions.get_mut(&message.partition).filter(|current| current.generation == message.generation)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Action {
        Assign(u32),
        Revoke(u32),
        Drain(u32),
        Arrive(u32, u64),
        Take,
        /// The message with this index among those that were ever taken and not settled.
        Finish(prop::sample::Index),
        GiveBack(prop::sample::Index, u64),
        RemoveOdd,
        Wait(u64),
        Close,
    }

    fn any_action() -> impl Strategy<Value = Action> {
        let partition = 0..3_u32;
        prop_oneof![
            3 => partition.clone().prop_map(Action::Assign),
            1 => partition.clone().prop_map(Action::Revoke),
            1 => partition.clone().prop_map(Action::Drain),
            // Few offsets, so that some arrive twice and some out of order.
            16 => (partition, 0..12_u64).prop_map(|(partition, offset)| Action::Arrive(partition, offset)),
            12 => Just(Action::Take),
            6 => any::<prop::sample::Index>().prop_map(Action::Finish),
            6 => (any::<prop::sample::Index>(), 0..4_u64).prop_map(|(index, delay)| Action::GiveBack(index, delay)),
            1 => Just(Action::RemoveOdd),
            3 => (1..4_u64).prop_map(Action::Wait),
        ]
    }

    /// At most one close, near the end.
    fn any_actions() -> impl Strategy<Value = Vec<Action>> {
        let actions = || proptest::collection::vec(any_action(), 0..80);
        (actions(), proptest::option::of(Just(Action::Close)), proptest::collection::vec(any_action(), 0..20))
            .prop_map(|(before, close, after)| before.into_iter().chain(close).chain(after).collect())
    }

    /// Everything about every message, in one list, searched from the beginning each time.
    #[derive(Debug, Default)]
    struct Model {
        /// Partition, generation, draining.
        assigned: Vec<(u32, u64, bool)>,
        generations: u64,
        messages: Vec<ModelMessage>,
        /// Removed, and never finished: partition and offset.
        abandoned: Vec<(u32, u64)>,
        /// Counts arrivals of each generation.
        arrivals: BTreeMap<u64, usize>,
        now: u64,
        is_closed: bool,
    }

    #[derive(Debug, Clone, PartialEq)]
    struct ModelMessage {
        partition: u32,
        generation: u64,
        offset: u64,
        arrival: usize,
        state: DeliveryState,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum DeliveryState {
        Fresh,
        WithConsumer,
        GivenBack { due: u64 },
    }

    impl Model {
        fn generation(&self, partition: u32) -> Option<u64> {
            self.assigned.iter().find(|(assigned, ..)| *assigned == partition).map(|(_, generation, _)| *generation)
        }

        fn is_draining(&self, partition: u32) -> bool {
            self.assigned.iter().any(|(assigned, _, draining)| *assigned == partition && *draining)
        }

        fn revoke(&mut self, partition: u32) {
            self.assigned.retain(|(assigned, ..)| *assigned != partition);
            self.messages.retain(|message| message.partition != partition);
            self.abandoned.retain(|(abandoned, _)| *abandoned != partition);
        }

        /// Removes messages that are not with the consumer; returns how many.
        fn remove_waiting(&mut self, selects: impl Fn(&ModelMessage) -> bool) -> usize {
            let is_removed = |message: &ModelMessage| message.state != DeliveryState::WithConsumer && selects(message);
            let removed = self.messages.iter().filter(|message| is_removed(message));
            let removed: Vec<(u32, u64)> = removed.map(|message| (message.partition, message.offset)).collect();
            self.messages.retain(|message| !is_removed(message));
            self.abandoned.extend(&removed);
            removed.len()
        }

        fn of(&self, partition: u32) -> Vec<&ModelMessage> {
            self.messages.iter().filter(|message| message.partition == partition).collect()
        }

        fn first_in_flight(&self, partition: u32) -> Option<&ModelMessage> {
            self.of(partition).into_iter().min_by_key(|message| message.offset)
        }

        fn first_unfinished(&self, partition: u32) -> Option<u64> {
            let abandoned = self.abandoned.iter().filter(|(abandoned, _)| *abandoned == partition);
            let in_flight = self.of(partition).into_iter().map(|message| message.offset);
            in_flight.chain(abandoned.map(|(_, offset)| *offset)).min()
        }

        /// The message that is to be delivered next.
        fn next(&self) -> Option<usize> {
            let indexed = || self.messages.iter().enumerate();
            let due = indexed()
                .filter(|(_, message)| matches!(message.state, DeliveryState::GivenBack { due } if due <= self.now));
            let due = due.min_by_key(|(_, message)| (message.partition, message.offset));
            due.or_else(|| indexed().find(|(_, message)| message.state == DeliveryState::Fresh)).map(|(index, _)| index)
        }

        fn find(&self, taken: &InFlightMessage<u64, u64>) -> Option<usize> {
            let is_it = |message: &ModelMessage| {
                (message.partition, message.generation, message.offset)
                    == (taken.partition, taken.generation, taken.offset)
            };
            self.messages.iter().position(is_it)
        }
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_list_of_messages(actions in any_actions()) {
            let start = Instant::now();
            let at = |tick: u64| start + Duration::from_secs(tick);
            let (mut state, mut model) = (State::<u64, u64>::default(), Model::default());
            let mut taken: Vec<InFlightMessage<u64, u64>> = Vec::new();
            for action in actions {
                match action {
                    Action::Assign(partition) => {
                        model.revoke(partition);
                        model.generations += 1;
                        model.assigned.push((partition, model.generations, false));
                        prop_assert_eq!(state.assign(partition), model.generations);
                    }
                    Action::Revoke(partition) => {
                        let first_unfinished = model.first_unfinished(partition);
                        let revoked = Revoked { first_unfinished, in_flight: model.of(partition).len() };
                        prop_assert_eq!(state.revoke(partition), revoked);
                        model.revoke(partition);
                    }
                    Action::Drain(partition) => {
                        state.drain(partition);
                        for assigned in model.assigned.iter_mut().filter(|(assigned, ..)| *assigned == partition) {
                            assigned.2 = true;
                        }
                        model.remove_waiting(|message| message.partition == partition);
                    }
                    Action::Arrive(partition, offset) => {
                        let generation = model.generation(partition).filter(|_| !model.is_draining(partition));
                        let is_known = model.of(partition).iter().any(|message| message.offset == offset);
                        let added = generation.filter(|_| !is_known && !model.is_closed);
                        prop_assert_eq!(state.arrive(partition, offset, offset), added.is_some());
                        if let Some(generation) = added {
                            let arrivals = model.arrivals.entry(generation).or_default();
                            let (arrival, state) = (*arrivals, DeliveryState::Fresh);
                            *arrivals += 1;
                            model.messages.push(ModelMessage { partition, generation, offset, arrival, state });
                        }
                    }
                    Action::Take => match (state.take(|| at(model.now)), model.next()) {
                        (Next::Message(message), Some(index)) => {
                            let expected = &mut model.messages[index];
                            expected.state = DeliveryState::WithConsumer;
                            let found = (message.partition, message.generation, message.offset, message.content);
                            let expected = (expected.partition, expected.generation, expected.offset, expected.offset);
                            prop_assert_eq!(found, expected);
                            taken.push(message);
                        }
                        (Next::Closed, None) => prop_assert!(model.is_closed),
                        (Next::Empty { due }, None) => {
                            let is_due = |message: &ModelMessage| match message.state {
                                DeliveryState::GivenBack { due } => Some(at(due)),
                                _ => None,
                            };
                            prop_assert!(!model.is_closed);
                            prop_assert_eq!(due, model.messages.iter().filter_map(is_due).min());
                        }
                        (found, expected) => prop_assert!(false, "{:?} in place of {:?}", found, expected),
                    },
                    Action::Finish(_) | Action::GiveBack(..) if taken.is_empty() => {}
                    Action::Finish(index) => {
                        let message = taken.swap_remove(index.index(taken.len()));
                        let known = model.find(&message).map(|index| model.messages.remove(index));
                        prop_assert_eq!(state.finish(&message), known.map(|_| model.messages.len()));
                        prop_assert_eq!(state.finish(&message), None, "it is finished once");
                    }
                    Action::GiveBack(index, delay) => {
                        let message = taken.swap_remove(index.index(taken.len()));
                        let due = model.now + delay;
                        if let Some(known) = model.find(&message) {
                            match model.is_closed || model.is_draining(message.partition) {
                                true => {
                                    model.messages.remove(known);
                                    model.abandoned.push((message.partition, message.offset));
                                }
                                false => model.messages[known].state = DeliveryState::GivenBack { due },
                            }
                        }
                        state.give_back(message, at(due));
                    }
                    Action::RemoveOdd => {
                        let count = model.remove_waiting(|message| message.offset % 2 == 1);
                        prop_assert_eq!(state.remove_waiting(|message| message.offset % 2 == 1).len(), count);
                    }
                    Action::Wait(ticks) => model.now += ticks,
                    Action::Close => {
                        state.close();
                        model.is_closed = true;
                        model.remove_waiting(|_| true);
                    }
                }
                prop_assert_eq!(state.unfinished(), model.messages.len());
                let fresh = model.messages.iter().filter(|message| message.state == DeliveryState::Fresh).count();
                prop_assert_eq!(state.waiting(), fresh);
                for partition in 0..3 {
                    let (found, first) = (state.partition(partition), model.first_in_flight(partition));
                    let first_unfinished = found.and_then(Partition::first_unfinished);
                    prop_assert_eq!(first_unfinished, model.first_unfinished(partition));
                    let backlog = first.map_or(0, |first| model.arrivals[&first.generation] - first.arrival);
                    prop_assert_eq!(found.map_or(0, |found| found.unfinished.backlog()), backlog);
                }
                for message in &taken {
                    let is_current = model.generation(message.partition) == Some(message.generation);
                    prop_assert_eq!(state.is_current(message), is_current);
                }
            }
        }
    }

    /// One message of each of `offsets` in partition 0.
    fn arrived(offsets: impl IntoIterator<Item = u64>) -> State<u64, ()> {
        let mut state = State::default();
        state.assign(0);
        offsets.into_iter().for_each(|offset| assert!(state.arrive(0, offset, ())));
        state
    }

    fn take(state: &mut State<u64, ()>) -> InFlightMessage<u64, ()> {
        let Next::Message(message) = state.take(Instant::now) else { panic!("a message is there") };
        message
    }

    #[test]
    fn only_the_contiguous_finished_prefix_counts() {
        // Offsets may have gaps, where a transaction ended.
        let mut state = arrived([10, 11, 13, 14]);
        let messages: Vec<_> = (0..4).map(|_| take(&mut state)).collect();
        let prefix = |state: &State<u64, ()>| {
            let partition = state.partition(0).unwrap();
            (partition.first_unfinished(), partition.unfinished.backlog())
        };
        state.finish(&messages[1]);
        state.finish(&messages[2]);
        assert_eq!(prefix(&state), (Some(10), 4));
        state.finish(&messages[0]);
        assert_eq!(prefix(&state), (Some(14), 1));
        state.finish(&messages[3]);
        assert_eq!(prefix(&state), (None, 0));
    }

    #[test]
    fn a_message_that_is_removed_unfinished_holds_back_the_prefix() {
        let mut state = arrived([1, 2]);
        let first = take(&mut state);
        state.close();
        assert_eq!(state.finish(&first), Some(0));
        assert_eq!(state.partition(0).unwrap().first_unfinished(), Some(2));
    }

    #[test]
    fn a_message_of_an_earlier_generation_changes_nothing() {
        let mut state = arrived([1]);
        let (stale, now) = (take(&mut state), Instant::now());
        state.assign(0);
        assert!(state.arrive(0, 1, ()), "the new generation delivers it again");
        assert_eq!(state.finish(&stale), None);
        state.give_back(stale, now);
        assert_eq!((state.unfinished(), state.waiting()), (1, 1));
    }

    #[test]
    fn redeliveries_come_first_and_in_the_order_of_their_offsets() {
        let mut state = arrived([1, 2, 3]);
        let (first, second, now) = (take(&mut state), take(&mut state), Instant::now());
        state.give_back(second, now);
        state.give_back(first, now);
        assert_eq!([(); 3].map(|()| take(&mut state).offset), [1, 2, 3]);
    }
}
