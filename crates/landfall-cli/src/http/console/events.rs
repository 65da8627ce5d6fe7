//! Tells open pages that something has changed, as server-sent events. An event contains no data: the page fetches
//! itself again, with the rights of its session.
//!
//! | event | meaning |
//! |---|---|
//! | `ready` | the stream is open |
//! | `change` | the figures differ from those before, or can be read again |
//! | `stale` | the figures cannot be read; repeated instead of `beat` until they can |
//! | `beat` | nothing has changed |

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use landfall::{AlertFilter, Timestamp};
use tokio::sync::{Semaphore, watch};

use super::now::LATE_SECONDS;
use super::page::Visitor;
use crate::http::health::ask_broker;
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// The most open pages.
const MAX_STREAMS: usize = 256;

/// A sign of life, so that a page notices a lost stream.
const BEAT: Duration = Duration::from_secs(5);

/// The pause between two looks at the database, which is one for all pages.
const LOOK: Duration = Duration::from_millis(500);

/// A database that takes longer than this does not answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two questions to the broker, which may be another machine.
const ASK_BROKER: Duration = Duration::from_secs(5);

/// What the last look found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// A number that differs when something has changed.
    digest: u64,
    /// The database did not answer, so an open page may show what is no longer so.
    is_stale: bool,
}

pub(super) struct Changes {
    /// It is only kept up to date while a page is open.
    seen: watch::Sender<Seen>,
    /// A task looks at the database. There is never more than one.
    is_looking: AtomicBool,
    streams: Arc<Semaphore>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            seen: watch::Sender::new(Seen::default()),
            is_looking: AtomicBool::new(false),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }
}

pub(super) async fn stream(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let Some(console) = &state.console else { return Err(Problem::not_found(visit.uri.path())) };
    let slot = console.changes.streams.clone().try_acquire_owned();
    let slot = slot.map_err(|_| Problem::unavailable("too many pages are open; close some of them"))?;
    let mut seen = console.changes.seen.subscribe();
    if seen.borrow().is_stale {
        seen.mark_changed();
    }
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
            let is_changed = tokio::select! {
                () = stop.cancelled() => return,
                () = sender.closed() => return,
                changed = seen.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
                () = tokio::time::sleep(BEAT) => false,
            };
            next = match (seen.borrow_and_update().is_stale, is_changed) {
                (true, _) => "event: stale\ndata:\n\n",
                (false, true) => "event: change\ndata:\n\n",
                (false, false) => "event: beat\ndata:\n\n",
            };
        }
    });
    let events = futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|event| (Ok::<_, Infallible>(event), receiver))
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}

/// Looks at the database until no page is open. The pause grows with the time that a look takes, so that pages never
/// take more than a tenth of a connection. After a failure it is shorter, because a new attempt tells pages to recover.
async fn look(state: Arc<State>) {
    let Some(console) = &state.console else { return };
    let changes = &console.changes;
    let mut broker = BrokerState::default();
    loop {
        if changes.seen.receiver_count() == 0 {
            // The next page starts with a look of its own, and not with an outage that may be over.
            changes.seen.send_modify(|seen| seen.is_stale = false);
            changes.is_looking.store(false, Ordering::SeqCst);
            // A page that was opened in between relied on this task.
            let is_needed = changes.seen.receiver_count() > 0;
            if !is_needed || changes.is_looking.swap(true, Ordering::SeqCst) {
                return;
            }
        }
        broker.update(&state).await;
        let started = Instant::now();
        let found = tokio::time::timeout(LOOK_TIMEOUT, digest(&state, &broker)).await;
        let pause = started.elapsed() * if matches!(found, Ok(Ok(_))) { 10 } else { 1 };
        let found = found.ok().and_then(Result::ok);
        changes.seen.send_if_modified(|seen| {
            let is_stale = found.is_none();
            let next = Seen { digest: found.unwrap_or(seen.digest), is_stale };
            std::mem::replace(seen, next) != next
        });
        tokio::select! {
            () = state.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK.max(pause)) => {}
        }
    }
}

/// Whether the broker accepts messages, as of the last question.
#[derive(Debug, Default)]
struct BrokerState {
    asked: Option<Instant>,
    error: Option<String>,
}

impl BrokerState {
    async fn update(&mut self, state: &State) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_BROKER) {
            self.error = ask_broker(state).await.err();
            self.asked = Some(Instant::now());
        }
    }
}

/// Summarizes the figures that are cheap to read. Pages also fetch themselves every few seconds for the others: ages,
/// and what people say about groups.
async fn digest(state: &State, broker: &BrokerState) -> landfall::Result<u64> {
    let newest = AlertFilter::default();
    let (letters, outbox, half, retrying, jobs, alerts) = tokio::try_join!(
        state.dead_letters.dead_letter_stats(),
        state.view.stats(),
        state.half.half_message_stats(),
        state.deliveries.retrying_counts(),
        state.redrives.redrive_jobs(None, 20),
        state.alerts.alerts(&newest, 1),
    )?;
    let is_late = outbox.oldest_seconds > LATE_SECONDS;
    let half = (half.prepared, half.parked, half.contradicted, half.early_commits);
    let mut hasher = DefaultHasher::new();
    format!("{letters:?} {} {} {} {is_late}", outbox.pending, outbox.retrying, outbox.published).hash(&mut hasher);
    format!("{half:?} {retrying:?} {:?}", broker.error).hash(&mut hasher);
    for job in jobs {
        format!("{} {:?} {:?}", job.id, job.state, job.counts).hash(&mut hasher);
    }
    for alert in alerts {
        format!("{} {}", alert.id, alert.version).hash(&mut hasher);
    }
    Ok(hasher.finish())
}
