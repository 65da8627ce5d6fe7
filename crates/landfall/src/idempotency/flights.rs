//! Callers of this process with one key: the first leads, the others wait for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_core::idempotency::{Fingerprint, RecordId, Snapshot};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The calls in progress.
#[derive(Debug, Default)]
pub(super) struct Flights {
    open: Mutex<HashMap<RecordId, Open>>,
}

#[derive(Debug)]
struct Open {
    fingerprint: Fingerprint,
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
    /// Another request has this key.
    Mismatch,
    /// Too many callers wait already.
    Full,
}

/// The leader's side. Dropping it lets the next caller lead.
#[derive(Debug)]
pub(super) struct Flight {
    flights: Arc<Flights>,
    id: RecordId,
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
        let mut open = self.lock();
        if let Some(flight) = open.get(&id) {
            if flight.fingerprint != *fingerprint {
                return Joined::Mismatch;
            }
            // The map has one reference, and every follower has one.
            if Arc::strong_count(&flight.waiters) > max_waiters {
                return Joined::Full;
            }
            return Joined::Follow(Follower { progress: flight.progress.clone(), _waiter: flight.waiters.clone() });
        }
        let (sender, receiver) = watch::channel(Progress::Running);
        open.insert(id, Open { fingerprint: *fingerprint, progress: receiver, waiters: Arc::default() });
        Joined::Lead(Flight { flights: Arc::clone(self), id, progress: sender })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Gives the answer to the callers that wait.
    pub(super) fn done(self, answer: Snapshot) {
        self.progress.send_replace(Progress::Done(answer));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.id);
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
