//! Telling SQS what became of messages, ten in a call, and again if the call failed.

use std::collections::VecDeque;
use std::time::Duration;

use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use landfall_core::TopicName;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::CallError;
use crate::plan::CALL_ENTRIES;
use crate::queues::Queues;

/// Calls of one kind at once.
const CALLS: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What SQS is told about one message.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) receipt: String,
    pub(crate) what: What,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Delete,
    /// Others may have it in so many seconds.
    GiveBack(i32),
    /// Its holder needs it for so many seconds more.
    Extend(i32),
}

impl Order {
    pub(crate) fn new(number: u64, receipt: String, what: What) -> Self {
        Self { number, receipt, what, failures: 0 }
    }
}

/// One call's answer to each of its orders.
pub(crate) type Told = Vec<(Order, Result<(), CallError>)>;

#[derive(Debug)]
pub(crate) struct Settling {
    queues: Queues,
    topic: TopicName,
    deletions: Line,
    changes: Line,
    later: Vec<(Instant, Order)>,
    running: JoinSet<(Kind, Instant, Told)>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Order>,
    calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deletion,
    Change,
}

impl Settling {
    pub(crate) fn new(queues: Queues, topic: TopicName) -> Self {
        let (deletions, changes) = (Line::default(), Line::default());
        Self { queues, topic, deletions, changes, later: Vec::new(), running: JoinSet::new() }
    }

    pub(crate) fn add(&mut self, order: Order) {
        match order.what {
            What::Delete => self.deletions.waiting.push_back(order),
            What::GiveBack(_) | What::Extend(_) => self.changes.waiting.push_back(order),
        }
    }

    /// Once more, after a pause that doubles.
    pub(crate) fn again(&mut self, mut order: Order) {
        let pause = FIRST_PAUSE * (1 << order.failures.min(5));
        order.failures += 1;
        self.later.push((Instant::now() + pause, order));
    }

    pub(crate) fn is_idle(&self) -> bool {
        let nothing = |line: &Line| line.waiting.is_empty();
        nothing(&self.deletions) && nothing(&self.changes) && self.later.is_empty() && self.running.is_empty()
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.later.iter().map(|(due, _)| *due).min()
    }

    /// Makes the calls that can be made. One that is not full waits while another is under way: more may come.
    pub(crate) fn start(&mut self) {
        let now = Instant::now();
        for (_, order) in self.later.extract_if(.., |(due, _)| *due <= now).collect::<Vec<_>>() {
            self.add(order);
        }
        for (kind, line) in [(Kind::Deletion, &mut self.deletions), (Kind::Change, &mut self.changes)] {
            while line.calls < CALLS
                && !line.waiting.is_empty()
                && (line.waiting.len() >= CALL_ENTRIES || line.calls == 0)
            {
                let orders: Vec<_> = line.waiting.drain(..line.waiting.len().min(CALL_ENTRIES)).collect();
                line.calls += 1;
                let (queues, topic) = (self.queues.clone(), self.topic.clone());
                self.running.spawn(async move { (kind, now, tell(queues, topic, kind, orders).await) });
            }
        }
    }

    /// When a call was made that has ended now, and its answers. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<(Instant, Told)> {
        loop {
            match self.running.join_next().await? {
                Ok((kind, made, told)) => {
                    let line = if kind == Kind::Deletion { &mut self.deletions } else { &mut self.changes };
                    line.calls -= 1;
                    return Some((made, told));
                }
                // Only a runtime that ends takes a task away.
                Err(error) => tracing::warn!(%error, topic = %self.topic, "a call about messages ended"),
            }
        }
    }
}

async fn tell(queues: Queues, topic: TopicName, kind: Kind, orders: Vec<Order>) -> Told {
    let told = match kind {
        Kind::Deletion => delete(&queues, &topic, &orders).await,
        Kind::Change => change(&queues, &topic, &orders).await,
    };
    match told {
        // What is not named as failed was done.
        Ok(failed) => {
            let trouble = |place: usize| failed.iter().find(|entry| entry.id == place.to_string()).map(CallError::from);
            let told = orders.into_iter().enumerate().map(|(place, order)| (order, trouble(place).map_or(Ok(()), Err)));
            told.collect()
        }
        Err(trouble) => {
            if trouble.is_missing() {
                queues.forget(&topic);
            }
            orders.into_iter().map(|order| (order, Err(trouble.clone()))).collect()
        }
    }
}

async fn delete(queues: &Queues, topic: &TopicName, orders: &[Order]) -> Result<Vec<BatchResultErrorEntry>, CallError> {
    let entries = orders.iter().enumerate().map(|(place, order)| {
        DeleteMessageBatchRequestEntry::builder().id(place.to_string()).receipt_handle(&order.receipt).build()
    });
    let entries: Result<Vec<_>, _> = entries.collect();
    let call = queues.client.delete_message_batch().queue_url(queues.url(topic).await?);
    Ok(call.set_entries(Some(entries.map_err(incomplete)?)).send().await?.failed)
}

async fn change(queues: &Queues, topic: &TopicName, orders: &[Order]) -> Result<Vec<BatchResultErrorEntry>, CallError> {
    let entries = orders.iter().enumerate().map(|(place, order)| {
        let seconds = match order.what {
            What::Delete => 0,
            What::GiveBack(seconds) | What::Extend(seconds) => seconds,
        };
        ChangeMessageVisibilityBatchRequestEntry::builder()
            .id(place.to_string())
            .receipt_handle(&order.receipt)
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
