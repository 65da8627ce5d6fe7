//! Sends the messages of one topic to its stream: many keys at once, and of each key one message at a time.
//!
//! Without waiting for the acknowledgement of its predecessor, a message could be stored although its predecessor was
//! not. The client sends the rest over a new connection when it loses the first. A new leader accepts what the old one
//! did not. A small message fits where a large one did not.
//!
//! The acknowledgements of one call arrive on one subscription, each under the index of its message. A future, a timer
//! and an entry in the client's request table for each of a thousand messages would cost more than sending them.

use std::pin::Pin;

use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, HeaderMap, Subscriber};
use futures_util::StreamExt;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::{ErrorCode, Message, Outcome, Position};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::broker::Nats;
use crate::connection::Watch;
use crate::error::{SendError, denied, from_ack_error, from_unsent};
use crate::publisher::publish_ack::{self, NO_ANSWER};
use crate::topic::Topic;
use crate::wire;

/// The most unacknowledged messages of one call. The client drops messages of a subscription that lags far behind.
const MAX_IN_FLIGHT: usize = 10_000;

/// Kept free below the size limit: the server closes the connection on a message above it.
const SIZE_MARGIN: usize = 128;

/// One call of publish, for one topic.
pub(crate) struct Sending<'a, 't> {
    broker: &'t Nats,
    topic: &'t Topic,
    client: Client,
    sequencer: KeySequencer<'a>,
    /// Messages for which no stream listened. Why is found out once, after the call.
    pub(crate) without_stream: Vec<usize>,
}

impl<'a, 't> Sending<'a, 't> {
    pub(crate) fn new(broker: &'t Nats, topic: &'t Topic, messages: &[&'a Message]) -> Self {
        let sequencer = KeySequencer::new(messages.iter().copied(), Pipelining::OnePerKey);
        let client = broker.connection.client();
        Self { broker, topic, client, sequencer, without_stream: Vec::new() }
    }

    /// Sends every message, of each key in the order given.
    pub(crate) async fn run(&mut self) {
        if self.sequencer.unsent().nth(1).is_none() {
            return self.send_single().await;
        }
        let watch = self.broker.connection.denials.watch();
        let inbox = self.client.new_inbox();
        let subscribing = timeout(self.broker.connection.timeout(), self.client.subscribe(format!("{inbox}.*"))).await;
        match subscribing {
            Ok(Ok(acks)) => self.send_all(&inbox, acks, watch).await,
            _ => self.give_up(),
        }
    }

    /// One outcome per message, in the order given.
    pub(crate) fn into_outcomes(self) -> Vec<Outcome> {
        self.sequencer.into_outcomes()
    }

    /// Sends the only message of a call as a request of the client, which needs no subscription.
    async fn send_single(&mut self) {
        let Some((index, headers)) = self.next_message() else { return };
        let result = self.request(index, headers).await;
        self.settle(index, result);
    }

    async fn request(&self, index: usize, headers: HeaderMap) -> Result<u64, SendError> {
        let connection = &self.broker.connection;
        let watch = connection.denials.watch();
        let (message, subject) = (self.sequencer.message(index), self.subject(index));
        let publish = PublishMessage::build().headers(headers).payload(message.payload.clone());
        // While disconnected the client queues only so much, and then blocks.
        let late = |_| SendError::NotStored(connection.not_sent());
        let context = connection.context();
        let sending = context.send_publish(subject.clone(), publish);
        let sent = timeout(connection.timeout(), sending).await.map_err(late)?;
        let ack = sent.map_err(|error| from_unsent(&error))?;
        let ack = tokio::select! {
            ack = ack.into_future() => ack,
            () = watch.denied(&subject) => return Err(denied(&subject)),
        };
        Ok(ack.map_err(|error| from_ack_error(&error))?.sequence)
    }

    async fn send_all(&mut self, inbox: &str, mut acks: Subscriber, mut watch: Watch) {
        let ack_timeout = self.broker.connection.timeout();
        let mut last_ack = Instant::now();
        let mut deadline: Pin<Box<Sleep>> = Box::pin(sleep_until(last_ack + ack_timeout));
        loop {
            while self.sequencer.in_flight() < MAX_IN_FLIGHT
                && let Some((index, headers)) = self.next_message()
            {
                if self.sequencer.in_flight() == 1 {
                    last_ack = Instant::now();
                }
                // While disconnected the client queues only so much, and then blocks.
                if timeout(ack_timeout, self.publish(inbox, index, headers)).await.is_err() {
                    self.sequencer.put_back(index);
                    self.give_up();
                }
            }
            if self.sequencer.in_flight() == 0 {
                return;
            }
            let unknown = || Outcome::Unknown(NO_ANSWER.into());
            tokio::select! {
                biased;
                ack = acks.next() => match ack {
                    Some(ack) => {
                        last_ack = Instant::now();
                        if let Some(index) = publish_ack::index(&ack) {
                            self.settle(index, publish_ack::parse(&ack));
                        }
                    }
                    None => self.sequencer.settle_in_flight(&unknown()),
                },
                subject = watch.next_denied() => self.denied(&subject),
                () = &mut deadline => match last_ack + ack_timeout {
                    // Acknowledgements arrive, if slowly.
                    later if later > Instant::now() => deadline.as_mut().reset(later),
                    _ => self.sequencer.settle_in_flight(&unknown()),
                },
            }
        }
    }

    /// Hands out the next message that can be sent, with its headers. Refuses invalid and oversized ones.
    fn next_message(&mut self) -> Option<(usize, HeaderMap)> {
        while let Some(index) = self.sequencer.take_next() {
            match self.encode(self.sequencer.message(index)) {
                Ok(headers) => return Some((index, headers)),
                Err(refused) => self.sequencer.settle(index, refused),
            }
        }
        None
    }

    fn encode(&self, message: &Message) -> Result<HeaderMap, Outcome> {
        let headers = wire::headers(message, &self.broker.options.source)
            .map_err(|error| Outcome::refuse(ErrorCode::VALIDATION, error.to_string()))?;
        let size = wire::size(&headers, &message.payload) + SIZE_MARGIN;
        let limit = self.broker.largest().min(self.topic.message_bytes.unwrap_or(usize::MAX));
        if size > limit {
            // The next attempt reads the limit again, which may have been raised.
            self.broker.topics.forget(&self.topic.name);
            let reason = format!("the message is {size} bytes with its headers, and the limit is {limit}");
            return Err(Outcome::refuse(ErrorCode::TOO_LARGE, reason));
        }
        Ok(headers)
    }

    async fn publish(&mut self, inbox: &str, index: usize, headers: HeaderMap) {
        let (subject, reply) = (self.subject(index), format!("{inbox}.{index}"));
        let payload = self.sequencer.message(index).payload.clone();
        if let Err(error) = self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await {
            let outcome = Outcome::retry_later(ErrorCode::UNAVAILABLE, format!("not sent: {error}"));
            self.sequencer.settle(index, outcome);
        }
    }

    fn settle(&mut self, index: usize, result: Result<u64, SendError>) {
        if !self.sequencer.is_in_flight(index) {
            return;
        }
        let partition = self.topic.shard_of(self.sequencer.message(index));
        let outcome = match result {
            Ok(offset) => Outcome::Accepted(Position { partition, offset }),
            Err(trouble) => {
                if trouble == SendError::NoStream {
                    self.without_stream.push(index);
                }
                trouble.outcome()
            }
        };
        self.sequencer.settle(index, outcome);
    }

    /// The server refused every message in flight to `subject`, and sends no acknowledgement for them.
    fn denied(&mut self, subject: &str) {
        for index in 0..self.sequencer.len() {
            if self.sequencer.is_in_flight(index) && self.subject(index).as_str() == subject {
                self.settle(index, Err(denied(subject)));
            }
        }
    }

    fn give_up(&mut self) {
        self.sequencer.give_up_unsent(&self.broker.connection.not_sent());
    }

    fn subject(&self, index: usize) -> async_nats::Subject {
        self.topic.subject(self.topic.shard_of(self.sequencer.message(index)))
    }
}
