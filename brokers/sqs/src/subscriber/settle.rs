//! Informs SQS of settled messages and extends visibility timeouts, ten messages in a call, with retries.

use std::collections::VecDeque;
use std::time::Duration;

use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use landfall_core::TopicName;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::CallError;
use crate::publisher::CALL_ENTRIES;
use crate::queues::Queues;

/// Concurrent calls of one kind.
const CALLS: usize = 8;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// What SQS is to do with one message.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) number: u64,
    receipt_handle: String,
    pub(crate) action: Action,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Delete,
    /// Make it visible to others after this many seconds.
    Release(i32),
    /// Hide it for this many seconds more.
    Extend(i32),
}

impl Request {
    pub(crate) fn new(number: u64, receipt_handle: String, action: Action) -> Self {
        Self { number, receipt_handle, action, failures: 0 }
    }
}

/// The requests of one call, each with its result.
pub(crate) type Answered = Vec<(Request, Result<(), CallError>)>;

#[derive(Debug)]
pub(crate) struct Settling {
    queues: Queues,
    topic: TopicName,
    deletions: Queue,
    changes: Queue,
    backing_off: Vec<(Instant, Request)>,
    running: JoinSet<(Kind, Instant, Answered)>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Request>,
    calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deletion,
    Change,
}

impl Settling {
    pub(crate) fn new(queues: Queues, topic: TopicName) -> Self {
        let (deletions, changes) = (Queue::default(), Queue::default());
        Self { queues, topic, deletions, changes, backing_off: Vec::new(), running: JoinSet::new() }
    }

    pub(crate) fn add(&mut self, request: Request) {
        match request.action {
            Action::Delete => self.deletions.waiting.push_back(request),
            Action::Release(_) | Action::Extend(_) => self.changes.waiting.push_back(request),
        }
    }

    /// Sends `request` again, after a backoff that doubles.
    pub(crate) fn retry(&mut self, mut request: Request) {
        let backoff = FIRST_BACKOFF * (1 << request.failures.min(5));
        request.failures += 1;
        self.backing_off.push((Instant::now() + backoff, request));
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_empty = |queue: &Queue| queue.waiting.is_empty();
        is_empty(&self.deletions) && is_empty(&self.changes) && self.backing_off.is_empty() && self.running.is_empty()
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.backing_off.iter().map(|(due, _)| *due).min()
    }

    /// Makes the calls that can be made. A call that is not full waits while another is in flight: more may come.
    pub(crate) fn start(&mut self) {
        let now = Instant::now();
        for (_, request) in self.backing_off.extract_if(.., |(due, _)| *due <= now).collect::<Vec<_>>() {
            self.add(request);
        }
        for (kind, queue) in [(Kind::Deletion, &mut self.deletions), (Kind::Change, &mut self.changes)] {
            while queue.calls < CALLS
                && !queue.waiting.is_empty()
                && (queue.waiting.len() >= CALL_ENTRIES || queue.calls == 0)
            {
                let requests: Vec<_> = queue.waiting.drain(..queue.waiting.len().min(CALL_ENTRIES)).collect();
                queue.calls += 1;
                let (queues, topic) = (self.queues.clone(), self.topic.clone());
                self.running.spawn(async move { (kind, now, call(queues, topic, kind, requests).await) });
            }
        }
    }

    /// Waits for a call to end, and returns when it was made and its answers. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Option<(Instant, Answered)> {
        loop {
            match self.running.join_next().await? {
                Ok((kind, made, answered)) => {
                    let queue = if kind == Kind::Deletion { &mut self.deletions } else { &mut self.changes };
                    queue.calls -= 1;
                    return Some((made, answered));
                }
                // Only a runtime that shuts down cancels a task.
                Err(error) => tracing::warn!(%error, topic = %self.topic, "settling call cancelled"),
            }
        }
    }
}

async fn call(queues: Queues, topic: TopicName, kind: Kind, requests: Vec<Request>) -> Answered {
    let failed = match kind {
        Kind::Deletion => delete(&queues, &topic, &requests).await,
        Kind::Change => change(&queues, &topic, &requests).await,
    };
    match failed {
        // Entries that SQS does not list as failed succeeded.
        Ok(failed) => {
            let error = |id: usize| failed.iter().find(|entry| entry.id == id.to_string()).map(CallError::from);
            let each = requests.into_iter().enumerate();
            each.map(|(id, request)| (request, error(id).map_or(Ok(()), Err))).collect()
        }
        Err(error) => {
            if error.is_missing() {
                queues.forget(&topic);
            }
            requests.into_iter().map(|request| (request, Err(error.clone()))).collect()
        }
    }
}

async fn delete(
    queues: &Queues,
    topic: &TopicName,
    requests: &[Request],
) -> Result<Vec<BatchResultErrorEntry>, CallError> {
    let entries = requests.iter().enumerate().map(|(id, request)| {
        DeleteMessageBatchRequestEntry::builder().id(id.to_string()).receipt_handle(&request.receipt_handle).build()
    });
    let entries: Result<Vec<_>, _> = entries.collect();
    let call = queues.client.delete_message_batch().queue_url(queues.url(topic).await?);
    Ok(call.set_entries(Some(entries.map_err(incomplete)?)).send().await?.failed)
}

async fn change(
    queues: &Queues,
    topic: &TopicName,
    requests: &[Request],
) -> Result<Vec<BatchResultErrorEntry>, CallError> {
    let entries = requests.iter().enumerate().map(|(id, request)| {
        let seconds = match request.action {
            Action::Delete => 0,
            Action::Release(seconds) | Action::Extend(seconds) => seconds,
        };
        ChangeMessageVisibilityBatchRequestEntry::builder()
            .id(id.to_string())
            .receipt_handle(&request.receipt_handle)
            .visibility_timeout(seconds)
            .build()
    });
    let entries: Result<Vec<_>, _> = entries.collect();
    let call = queues.client.change_message_visibility_batch().queue_url(queues.url(topic).await?);
    Ok(call.set_entries(Some(entries.map_err(incomplete)?)).send().await?.failed)
}

fn incomplete(error: aws_sdk_sqs::error::BuildError) -> CallError {
    CallError::new(crate::error::Effect::Permanent, landfall_core::ErrorCode::VALIDATION, error.to_string())
}
