//! Tells open pages that something has changed, as server-sent events. An event contains no data: the page fetches
//! itself again, with the rights of its session.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use landfall::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::page::Visitor;
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// The most open pages.
const MAX_STREAMS: usize = 256;

/// A sign of life, so that a page notices a lost stream.
const BEAT: Duration = Duration::from_secs(5);

/// The pause between two looks at the database, which is one for all pages.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Changes {
    /// A number that differs when something has changed. It is only watched while a page is open.
    digest: watch::Sender<u64>,
    /// A task looks at the database. There is never more than one.
    is_looking: AtomicBool,
    streams: Arc<Semaphore>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            digest: watch::Sender::new(0),
            is_looking: AtomicBool::new(false),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }
}

pub(super) async fn stream(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let Some(console) = &state.console else { return Err(Problem::not_found(visit.uri.path())) };
    let slot = console.changes.streams.clone().try_acquire_owned();
    let slot = slot.map_err(|_| Problem::unavailable("too many pages are open; close some of them"))?;
    let mut changes = console.changes.digest.subscribe();
    if !console.changes.is_looking.swap(true, Ordering::SeqCst) {
        tokio::spawn(look(state.clone()));
    }
    let expires = visit.session.as_ref().and_then(|session| session.expires);
    let stop = state.stop.clone();
    let (sender, receiver) = tokio::sync::mpsc::channel::<&'static str>(2);
    tokio::spawn(async move {
        let _slot = slot;
        let mut next = "event: ready\ndata:\n\n";
        loop {
            let is_over = expires.is_some_and(|expires| expires <= Timestamp::now());
            if is_over || sender.send(next).await.is_err() {
                return;
            }
            next = tokio::select! {
                () = stop.cancelled() => return,
                () = sender.closed() => return,
                changed = changes.changed() => match changed {
                    Ok(()) => "event: change\ndata:\n\n",
                    Err(_) => return,
                },
                () = tokio::time::sleep(BEAT) => "event: beat\ndata:\n\n",
            };
        }
    });
    let events = futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|event| (Ok::<_, Infallible>(event), receiver))
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}

/// Looks at the database until no page is open. The pause grows with the time that a look takes, so that pages never
/// take more than a tenth of a connection.
async fn look(state: Arc<State>) {
    let Some(console) = &state.console else { return };
    let changes = &console.changes;
    loop {
        if changes.digest.receiver_count() == 0 {
            changes.is_looking.store(false, Ordering::SeqCst);
            // A page that was opened in between relied on this task.
            let is_needed = changes.digest.receiver_count() > 0;
            if !is_needed || changes.is_looking.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        let started = Instant::now();
        if let Ok(digest) = digest(&state).await {
            changes.digest.send_if_modified(|known| std::mem::replace(known, digest) != digest);
        }
        tokio::select! {
            () = state.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK.max(started.elapsed() * 10)) => {}
        }
    }
}

async fn digest(state: &State) -> landfall::Result<u64> {
    let (letters, outbox, jobs) = tokio::try_join!(
        state.dead_letters.dead_letter_stats(),
        state.view.stats(),
        state.redrives.redrive_jobs(None, 20),
    )?;
    let mut hasher = DefaultHasher::new();
    format!("{letters:?} {} {} {}", outbox.pending, outbox.retrying, outbox.published).hash(&mut hasher);
    for job in jobs {
        format!("{} {:?} {:?}", job.id, job.state, job.counts).hash(&mut hasher);
    }
    Ok(hasher.finish())
}
