//! One task for each subscriber. It receives, keeps what is held from being handed to others, and tells SQS what became
//! of it. It ends when its subscriber has gone and nothing that it handed out is left, so that a delivery which outlives
//! its subscriber is still finished or given back.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::MessageSystemAttributeName as System;
use landfall_core::{Delivery, TopicName};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::error::{CallError, Effect};
use crate::held::{Decision, Held};
use crate::poll::{Polled, Polls};
use crate::queues::Queues;
use crate::settle::{Order, Settling, Told, What};
use crate::shelf::Shelf;
use crate::subscriber::Receipt;
use crate::wire;

/// How long a subscriber that closes waits for calls that are listening. What they bring later is given back, unless
/// the process has ended: then it comes again when SQS misses its holder.
const LAST_CALLS: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) enum Command {
    /// Somebody waits, and there is nothing.
    Wanted,
    /// Something was taken, and little is left.
    Low,
    Finish(u64),
    GiveBack(u64, Duration),
    /// Answered when everything that was decided has been told.
    Stop(Option<oneshot::Sender<()>>),
}

pub(crate) struct Member {
    topic: TopicName,
    visibility: Duration,
    shelf: Arc<Shelf>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// For the receipts.
    tell: mpsc::UnboundedSender<Command>,
    held: Held,
    polls: Polls,
    settling: Settling,
    stopped: Option<Instant>,
    waiting_for_the_end: Vec<oneshot::Sender<()>>,
}

impl Member {
    pub(crate) fn new(queues: Queues, topic: TopicName, shelf: Arc<Shelf>) -> (Self, mpsc::UnboundedSender<Command>) {
        let (tell, commands) = mpsc::unbounded_channel();
        let visibility = queues.options.visibility;
        let member = Self {
            visibility,
            shelf,
            commands,
            tell: tell.clone(),
            held: Held::new(visibility),
            polls: Polls::new(queues.clone(), topic.clone()),
            settling: Settling::new(queues, topic.clone()),
            topic,
            stopped: None,
            waiting_for_the_end: Vec::new(),
        };
        (member, tell)
    }

    pub(crate) async fn run(mut self) {
        let mut beat = interval(self.visibility / 6);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = self.wake_at();
            tokio::select! {
                Some(command) = self.commands.recv() => {
                    self.obey(command);
                    // Those that came together are told together.
                    while let Ok(command) = self.commands.try_recv() {
                        self.obey(command);
                    }
                }
                Some(polled) = self.polls.next() => self.arrived(polled),
                Some((made, told)) = self.settling.next() => self.told(made, told),
                _ = beat.tick() => self.extend(),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            if self.stopped.is_none() {
                self.polls.start(self.held.len(), self.shelf.len());
            }
            self.settling.start();
            if self.has_ended() {
                return;
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let last_calls = (!self.waiting_for_the_end.is_empty()).then_some(self.stopped).flatten();
        let last_calls = last_calls.map(|stopped| stopped + LAST_CALLS).filter(|end| *end > Instant::now());
        let polls = self.polls.wake_at().filter(|_| self.stopped.is_none());
        [polls, self.settling.wake_at(), last_calls].into_iter().flatten().min()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Wanted => self.polls.wanted = self.shelf.len() == 0,
            Command::Low => {}
            Command::Finish(number) => self.decide(number, Decision::Finish),
            Command::GiveBack(number, delay) => {
                let decision = self.held.give_back(number, delay, Instant::now());
                self.decide(number, decision);
            }
            Command::Stop(waiting) => {
                self.stopped.get_or_insert_with(Instant::now);
                self.waiting_for_the_end.extend(waiting);
                drop(self.shelf.close(None));
            }
        }
    }

    fn decide(&mut self, number: u64, decision: Decision) {
        let Some(hold) = self.held.get(number) else { return };
        hold.done = true;
        if hold.extending {
            hold.decided = Some(decision);
            return;
        }
        let what = match decision {
            Decision::Finish => What::Delete,
            Decision::GiveBack(seconds) => What::GiveBack(seconds),
        };
        self.settling.add(Order::new(number, hold.receipt.clone(), what));
    }

    fn arrived(&mut self, polled: Polled) {
        let messages = match polled.result {
            Ok(messages) => messages,
            Err(trouble) if trouble.effect == Effect::Permanent && self.stopped.is_none() => {
                let error = trouble.into_error(&format!("the queue of topic {} cannot be received from", self.topic));
                self.stopped = Some(Instant::now());
                return drop(self.shelf.close(Some(error)));
            }
            Err(_) => return,
        };
        let mut arrived = Vec::with_capacity(messages.len());
        for stored in messages {
            let group = stored.attributes().and_then(|known| known.get(&System::MessageGroupId)).cloned();
            let message_id = stored.message_id().unwrap_or_default().to_owned();
            let position = wire::position(&message_id);
            let receipt = stored.receipt_handle().unwrap_or_default().to_owned();
            let number = self.held.add(receipt, message_id, polled.asked.max(self.listened_since()));
            let now = Instant::now();
            if let Some(delay) = self.held.postponed(number, now) {
                let decision = self.held.give_back(number, delay, now);
                self.decide(number, decision);
            } else if self.stopped.is_some() {
                self.decide(number, Decision::GiveBack(0));
            } else {
                let message = wire::decode(&self.topic, &stored);
                let receipt = Receipt::new(number, group.clone(), self.shelf.clone(), self.tell.clone());
                arrived.push((group, Delivery::new(message, position, Box::new(receipt))));
            }
        }
        if !arrived.is_empty() {
            self.polls.wanted = false;
            self.shelf.put(arrived);
        }
    }

    /// A call may have listened for a long time before anything came, so that its beginning says little about when the
    /// message was handed over: that was a moment ago.
    fn listened_since(&self) -> Instant {
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
    }

    fn extend(&mut self) {
        let seconds = i32::try_from(self.visibility.as_secs()).unwrap_or(i32::MAX);
        for (number, receipt) in self.held.extend(Instant::now()) {
            self.settling.add(Order::new(number, receipt, What::Extend(seconds)));
        }
    }

    fn told(&mut self, made: Instant, told: Told) {
        for (order, result) in told {
            match order.what {
                What::Extend(_) => self.extended(made, order.number, result),
                What::Delete | What::GiveBack(_) => self.settled(order, result),
            }
        }
    }

    fn extended(&mut self, made: Instant, number: u64, result: Result<(), CallError>) {
        let Some(hold) = self.held.get(number) else { return };
        hold.extending = false;
        match result {
            Ok(()) => hold.until = made + self.visibility,
            Err(trouble) if trouble.effect == Effect::Permanent => {
                tracing::warn!(%trouble, topic = %self.topic, "a message is held no longer; it comes again");
                hold.done = true;
            }
            // The next beat tries again.
            Err(trouble) => tracing::warn!(%trouble, topic = %self.topic, "a message may come to others as well"),
        }
        if let Some(decision) = hold.decided.take() {
            self.decide(number, decision);
        }
    }

    fn settled(&mut self, order: Order, result: Result<(), CallError>) {
        let Err(trouble) = result else { return self.held.remove(order.number) };
        let Some(hold) = self.held.get(order.number) else { return };
        if trouble.effect == Effect::Permanent || trouble.is_missing() || hold.until < Instant::now() {
            // SQS has given it to others by itself, or soon will.
            tracing::warn!(%trouble, topic = %self.topic, "not acknowledged; the message comes again");
            self.held.remove(order.number);
        } else {
            self.settling.again(order);
        }
    }

    /// Whether this task has nothing left to do. Those who wait for less are answered on the way.
    fn has_ended(&mut self) -> bool {
        let Some(stopped) = self.stopped else { return false };
        if !self.commands.is_empty() || !self.settling.is_idle() {
            return false;
        }
        if self.polls.is_idle() || stopped.elapsed() >= LAST_CALLS {
            for waiting in self.waiting_for_the_end.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = waiting.send(());
            }
        }
        self.polls.is_idle() && self.held.len() == 0
    }
}
