//! What a subscriber has received and not handed out yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_core::{Delivery, Error};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    state: Mutex<State>,
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its message group, where the queue has groups.
    ready: VecDeque<(Option<String>, Delivery)>,
    failed: Option<Error>,
    closed: bool,
}

#[derive(Debug)]
pub(crate) enum Taken {
    /// And how many are left.
    Delivery(Box<Delivery>, usize),
    Nothing,
    Failed(Error),
    Closed,
}

impl Shelf {
    /// What came together is put here together: whoever gives the first of a group back must find the others.
    pub(crate) fn put(&self, deliveries: Vec<(Option<String>, Delivery)>) {
        self.state().ready.extend(deliveries);
        self.changed.notify_one();
    }

    pub(crate) fn take(&self) -> Taken {
        let mut state = self.state();
        if let Some((_, delivery)) = state.ready.pop_front() {
            return Taken::Delivery(Box::new(delivery), state.ready.len());
        }
        match (state.failed.take(), state.closed) {
            (Some(error), _) => Taken::Failed(error),
            (None, true) => Taken::Closed,
            (None, false) => Taken::Nothing,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().ready.len()
    }

    /// What is there of a group: it must not overtake one that was given back.
    pub(crate) fn take_group(&self, group: &str) -> Vec<Delivery> {
        let mut state = self.state();
        let (taken, left) =
            std::mem::take(&mut state.ready).into_iter().partition(|(of, _)| of.as_deref() == Some(group));
        state.ready = left;
        let taken: VecDeque<_> = taken;
        taken.into_iter().map(|(_, delivery)| delivery).collect()
    }

    /// Takes everything, and lets nobody wait any more.
    pub(crate) fn close(&self, failed: Option<Error>) -> Vec<Delivery> {
        let mut state = self.state();
        state.closed = true;
        if failed.is_some() {
            state.failed = failed;
        }
        self.changed.notify_one();
        state.ready.drain(..).map(|(_, delivery)| delivery).collect()
    }

    /// Nothing is done under the lock that could leave it half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
