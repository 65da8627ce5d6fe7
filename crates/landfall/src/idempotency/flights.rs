//! Callers of this process with one key and one request: the first leads, the others wait for its answer.
//!
//! A caller with another request under the key leads a flight of its own: only the store knows which request has the
//! record. It is refused here only while a leader of this process has claimed the record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_core::idempotency::{Fingerprint, RecordId, Snapshot};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The calls in progress.
#[derive(Debug, Default)]
pub(super) struct Flights {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<(RecordId, Fingerprint), Open>,
    /// The requests whose leader has claimed the record.
    claimed: HashMap<RecordId, Fingerprint>,
}

#[derive(Debug)]
struct Open {
    progress: watch::Receiver<Progress>,
    waiters: Arc<()>,
}

#[derive(Debug, Clone)]
enum Progress {
    Running,
    Done(Snapshot),
    /// The leader has no answer for the others; the next one leads.
    Over,
}

pub(super) enum Joined {
    Lead(Flight),
    Follow(Follower),
    /// Another request has claimed this key.
    Mismatch,
    /// Too many callers wait already.
    Full,
}

/// The leader's side. Dropping it lets the next caller lead.
#[derive(Debug)]
pub(super) struct Flight {
    flights: Arc<Flights>,
    id: RecordId,
    fingerprint: Fingerprint,
    progress: watch::Sender<Progress>,
}

#[derive(Debug)]
pub(super) struct Follower {
    progress: watch::Receiver<Progress>,
    _waiter: Arc<()>,
}

pub(super) enum Followed {
    Done(Snapshot),
    Over,
    TimedOut,
}

impl Flights {
    pub(super) fn join(self: &Arc<Self>, id: RecordId, fingerprint: &Fingerprint, max_waiters: usize) -> Joined {
        let mut state = self.lock();
        if state.claimed.get(&id).is_some_and(|claimed| claimed != fingerprint) {
            return Joined::Mismatch;
        }
        if let Some(flight) = state.open.get(&(id, *fingerprint)) {
            // The map has one reference, and every follower has one.
            if Arc::strong_count(&flight.waiters) > max_waiters {
                return Joined::Full;
            }
            return Joined::Follow(Follower { progress: flight.progress.clone(), _waiter: flight.waiters.clone() });
        }
        let (sender, receiver) = watch::channel(Progress::Running);
        state.open.insert((id, *fingerprint), Open { progress: receiver, waiters: Arc::default() });
        Joined::Lead(Flight { flights: Arc::clone(self), id, fingerprint: *fingerprint, progress: sender })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// The record has the request of this flight until it ends.
    pub(super) fn claimed(&self) {
        self.flights.lock().claimed.insert(self.id, self.fingerprint);
    }

    /// Gives the answer to the callers that wait.
    pub(super) fn done(self, answer: Snapshot) {
        self.progress.send_replace(Progress::Done(answer));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = self.flights.lock();
        state.open.remove(&(self.id, self.fingerprint));
        if state.claimed.get(&self.id) == Some(&self.fingerprint) {
            state.claimed.remove(&self.id);
        }
        drop(state);
        self.progress.send_if_modified(|progress| {
            let is_running = matches!(progress, Progress::Running);
            if is_running {
                *progress = Progress::Over;
            }
            is_running
        });
    }
}

impl Follower {
    pub(super) async fn wait(mut self, deadline: Instant) -> Followed {
        let ended = self.progress.wait_for(|progress| !matches!(progress, Progress::Running));
        match timeout_at(deadline, ended).await {
            Ok(Ok(progress)) => match &*progress {
                Progress::Done(answer) => Followed::Done(answer.clone()),
                Progress::Running | Progress::Over => Followed::Over,
            },
            Ok(Err(_)) => Followed::Over,
            Err(_) => Followed::TimedOut,
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::idempotency::{FingerprintBuilder, Identity, Scope};

    use super::*;

    #[test]
    fn only_a_claim_refuses_another_request() {
        let flights = Arc::new(Flights::default());
        let id = Identity::new(Scope::Global, "payment", "7").unwrap().id();
        let [own, other] = ["own", "other"].map(|text| FingerprintBuilder::new(text).finish());
        let Joined::Lead(wrong) = flights.join(id, &other, 10) else { panic!("the first caller leads") };
        let Joined::Lead(leader) = flights.join(id, &own, 10) else { panic!("the record may be of this request") };
        assert!(matches!(flights.join(id, &other, 10), Joined::Follow(_)));
        leader.claimed();
        assert!(matches!(flights.join(id, &other, 10), Joined::Mismatch));
        assert!(matches!(flights.join(id, &own, 10), Joined::Follow(_)));
        // The end of a flight that claimed nothing leaves the claim.
        drop(wrong);
        assert!(matches!(flights.join(id, &other, 10), Joined::Mismatch));
        drop(leader);
        assert!(matches!(flights.join(id, &other, 10), Joined::Lead(_)));
    }
}
