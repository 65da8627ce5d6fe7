//! The background task of a subscriber: it fetches, extends visibility timeouts, and informs SQS of settled messages.
//!
//! It ends when its subscriber is gone and every message it delivered is settled. So a delivery that outlives its
//! subscriber can still be acknowledged or given back.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::MessageSystemAttributeName as System;
use landfall_core::TopicName;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::error::{CallError, Effect};
use crate::queues::Queues;
use crate::subscriber::poll::{Polled, Polls};
use crate::subscriber::settle::{Action, Answered, Request, Settling};
use crate::subscriber::visibility::{Settlement, Visibility};
use crate::subscriber::{Deliveries, Fetched};
use crate::wire;

/// How long a subscriber that closes waits for long polls. A message that one of them returns later is released, unless
/// the process has ended; then SQS redelivers it after its visibility timeout.
const LAST_POLLS: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) enum Command {
    /// The subscriber waits, and no message is there.
    Wanted,
    /// A message was delivered, and few are left.
    Low,
    Ack(u64),
    Nack(u64, Duration),
    /// Answered when SQS has been informed of everything settled by then.
    Stop(Option<oneshot::Sender<()>>),
}

pub(crate) struct Member {
    topic: TopicName,
    visibility_timeout: Duration,
    deliveries: Arc<Deliveries>,
    commands: mpsc::UnboundedReceiver<Command>,
    visibility: Visibility,
    polls: Polls,
    settling: Settling,
    stopped: Option<Instant>,
    closing: Vec<oneshot::Sender<()>>,
}

impl Member {
    pub(crate) fn new(
        queues: Queues,
        topic: TopicName,
        deliveries: Arc<Deliveries>,
    ) -> (Self, mpsc::UnboundedSender<Command>) {
        let (sender, commands) = mpsc::unbounded_channel();
        let visibility_timeout = queues.options.visibility;
        let member = Self {
            visibility_timeout,
            deliveries,
            commands,
            visibility: Visibility::new(visibility_timeout),
            polls: Polls::new(queues.clone(), topic.clone()),
            settling: Settling::new(queues, topic.clone()),
            topic,
            stopped: None,
            closing: Vec::new(),
        };
        (member, sender)
    }

    pub(crate) async fn run(mut self) {
        let mut beat = interval(self.visibility_timeout / 6);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = self.wake_at();
            tokio::select! {
                Some(command) = self.commands.recv() => {
                    self.execute(command);
                    // Commands that arrived together share calls.
                    while let Ok(command) = self.commands.try_recv() {
                        self.execute(command);
                    }
                }
                Some(polled) = self.polls.next() => self.arrived(polled),
                Some((made, answered)) = self.settling.next() => self.answered(made, answered),
                _ = beat.tick() => self.extend(),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            if self.stopped.is_none() {
                self.polls.start(self.visibility.len(), self.deliveries.waiting());
            }
            self.settling.start();
            if self.has_ended() {
                return;
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let last_polls = (!self.closing.is_empty()).then_some(self.stopped).flatten();
        let last_polls = last_polls.map(|stopped| stopped + LAST_POLLS).filter(|end| *end > Instant::now());
        let polls = self.polls.wake_at().filter(|_| self.stopped.is_none());
        [polls, self.settling.wake_at(), last_polls].into_iter().flatten().min()
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Wanted => self.polls.wanted = self.deliveries.waiting() == 0,
            Command::Low => {}
            Command::Ack(number) => self.settle(number, Settlement::Delete),
            Command::Nack(number, delay) => {
                let settlement = self.visibility.release(number, delay, Instant::now());
                self.settle(number, settlement);
            }
            Command::Stop(closing) => {
                self.stopped.get_or_insert_with(Instant::now);
                self.closing.extend(closing);
                self.release_waiting();
            }
        }
    }

    /// Delivers nothing more; other consumers get what waits here at once.
    fn release_waiting(&mut self) {
        for message in self.deliveries.close() {
            self.settle(message.offset, Settlement::Release(0));
        }
    }

    fn settle(&mut self, number: u64, settlement: Settlement) {
        let Some(message) = self.visibility.get(number) else { return };
        message.is_settled = true;
        if message.is_extending {
            message.deferred = Some(settlement);
            return;
        }
        let action = match settlement {
            Settlement::Delete => Action::Delete,
            Settlement::Release(seconds) => Action::Release(seconds),
        };
        self.settling.add(Request::new(number, message.receipt_handle.clone(), action));
    }

    fn arrived(&mut self, polled: Polled) {
        let messages = match polled.result {
            Ok(messages) => messages,
            Err(error) if error.effect == Effect::Permanent && self.stopped.is_none() => {
                let error = error.into_error(&format!("the queue of topic {} cannot be received from", self.topic));
                self.stopped = Some(Instant::now());
                self.deliveries.fail(error);
                return self.release_waiting();
            }
            Err(_) => return,
        };
        let mut arrived = Vec::with_capacity(messages.len());
        for stored in messages {
            let group = stored.attributes().and_then(|known| known.get(&System::MessageGroupId)).cloned();
            let message_id = stored.message_id().unwrap_or_default().to_owned();
            let position = wire::position(&message_id);
            let receipt_handle = stored.receipt_handle().unwrap_or_default().to_owned();
            let number = self.visibility.add(receipt_handle, message_id, polled.asked.max(a_second_ago()));
            let now = Instant::now();
            if let Some(delay) = self.visibility.remaining_delay(number, now) {
                let settlement = self.visibility.release(number, delay, now);
                self.settle(number, settlement);
            } else if self.stopped.is_some() {
                self.settle(number, Settlement::Release(0));
            } else {
                let message = wire::decode(&self.topic, &stored);
                arrived.push((0, number, Fetched { message, position, group }));
            }
        }
        if !arrived.is_empty() {
            self.polls.wanted = false;
            // Together, so that a nack of the first message of a group finds its successors.
            self.deliveries.arrive(arrived);
        }
    }

    fn extend(&mut self) {
        let seconds = i32::try_from(self.visibility_timeout.as_secs()).unwrap_or(i32::MAX);
        for (number, receipt_handle) in self.visibility.extend(Instant::now()) {
            self.settling.add(Request::new(number, receipt_handle, Action::Extend(seconds)));
        }
    }

    fn answered(&mut self, made: Instant, answered: Answered) {
        for (request, result) in answered {
            match request.action {
                Action::Extend(_) => self.extended(made, request.number, result),
                Action::Delete | Action::Release(_) => self.settled(request, result),
            }
        }
    }

    fn extended(&mut self, made: Instant, number: u64, result: Result<(), CallError>) {
        let Some(message) = self.visibility.get(number) else { return };
        message.is_extending = false;
        match result {
            Ok(()) => message.hidden_until = made + self.visibility_timeout,
            Err(error) if error.effect == Effect::Permanent => {
                tracing::warn!(%error, topic = %self.topic, "visibility timeout not extended, SQS redelivers");
                message.is_settled = true;
            }
            // The next beat tries again.
            Err(error) => {
                tracing::warn!(%error, topic = %self.topic, "visibility timeout not extended yet, trying again");
            }
        }
        if let Some(settlement) = message.deferred.take() {
            self.settle(number, settlement);
        }
    }

    fn settled(&mut self, request: Request, result: Result<(), CallError>) {
        let Err(error) = result else { return self.visibility.remove(request.number) };
        let Some(message) = self.visibility.get(request.number) else { return };
        if error.effect == Effect::Permanent || error.is_missing() || message.hidden_until < Instant::now() {
            // The message is visible to other consumers already, or soon will be.
            tracing::warn!(%error, topic = %self.topic, "message not acknowledged, SQS redelivers");
            self.visibility.remove(request.number);
        } else {
            self.settling.retry(request);
        }
    }

    /// Whether this task has nothing left to do. Answers the callers of `close` on the way.
    fn has_ended(&mut self) -> bool {
        let Some(stopped) = self.stopped else { return false };
        if !self.commands.is_empty() || !self.settling.is_idle() {
            return false;
        }
        if self.polls.is_idle() || stopped.elapsed() >= LAST_POLLS {
            for closing in self.closing.drain(..) {
                // The caller may have stopped waiting.
                let _ = closing.send(());
            }
        }
        self.polls.is_idle() && self.visibility.len() == 0
    }
}

/// The earliest time at which a message that has just arrived can have been hidden. A long poll may have waited for a
/// long time before SQS returned a message, so the time of the call says little.
fn a_second_ago() -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
}
