//! Publishing in as few rounds as the order of keys allows, each round at once.

pub(crate) mod confirm;
pub(crate) mod confirm_channel;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::{Error, ErrorCode, ErrorKind, Message, Outcome, Publisher, Result, TopicName};
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::config::Options;
use crate::error::{self, ServerError};
use crate::link::Link;
use crate::subscriber::warm_up::{self, OnePerKey};
use crate::{layout, names, wire};
use confirm_channel::{ConfirmChannel, Confirmed, Publication};

/// The most channels that wait for their next batch.
const MAX_IDLE: usize = 8;

pub(crate) struct RabbitPublisher {
    options: Arc<Options>,
    link: Arc<Link>,
    idle: Mutex<Vec<ConfirmChannel>>,
    /// The largest payload that the server accepts, as far as is known.
    payload_bytes: AtomicUsize,
    one_per_key: Mutex<OnePerKey>,
}

/// The exchange of each topic of a batch.
type Exchanges<'a> = HashMap<&'a TopicName, ShortString>;

#[async_trait]
impl Publisher for RabbitPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut sequencer = KeySequencer::new(batch, Pipelining::InOrder);
        let exchanges = self.refuse_invalid(&mut sequencer);
        if sequencer.unsent().next().is_some()
            && let Err(error) = self.send(&mut sequencer, &exchanges).await
        {
            let code = match is_denied(&error) {
                true => ErrorCode::DENIED,
                false => ErrorCode::UNAVAILABLE,
            };
            sequencer.give_up_unsent(&Outcome::retry_later(code, error.to_string()));
        }
        sequencer.into_outcomes()
    }
}

impl RabbitPublisher {
    pub(crate) fn new(options: Arc<Options>, link: Arc<Link>) -> Self {
        let payload_bytes = AtomicUsize::new(options.payload_bytes);
        let one_per_key = Mutex::new(OnePerKey { always: options.one_per_key, ..OnePerKey::default() });
        Self { options, link, idle: Mutex::new(Vec::new()), payload_bytes, one_per_key }
    }

    /// Refuses messages that are known to be invalid, and returns the exchanges of the others.
    fn refuse_invalid<'a>(&self, sequencer: &mut KeySequencer<'a>) -> Exchanges<'a> {
        let limit = self.payload_bytes.load(Ordering::Relaxed);
        let mut exchanges = Exchanges::new();
        sequencer.refuse_unsent(|message| {
            if !exchanges.contains_key(&message.topic) {
                match names::topic(&self.options.prefix, &message.topic) {
                    Ok(exchange) => drop(exchanges.insert(&message.topic, exchange)),
                    Err(error) => return Some(Outcome::refuse(ErrorCode::VALIDATION, error.to_string())),
                }
            }
            (message.payload.len() > limit).then(|| too_large(message, limit))
        });
        exchanges
    }

    async fn send<'a>(&self, sequencer: &mut KeySequencer<'a>, exchanges: &Exchanges<'a>) -> Result<()> {
        // Checked first: a server with an alarm does not even open a channel.
        let connection = self.link.connection().await?;
        if connection.status().blocked() {
            sequencer.give_up_unsent(&Outcome::retry_later(ErrorCode::STORAGE_FULL, error::ALARM));
            return Ok(());
        }
        let deadline = Instant::now() + self.options.timeout;
        // A server that raises an alarm now answers no request. Nothing was sent yet.
        let ready = self.prepare_channel(sequencer, exchanges);
        let Ok(ready) = tokio::time::timeout_at(deadline, ready).await else {
            self.link.give_up(&connection).await;
            return Err(Error::new(ErrorKind::Unavailable, "RabbitMQ did not open a channel in time"));
        };
        let mut channel = ready?;
        loop {
            let one_per_key = self.one_per_key.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let round = warm_up::next_round(sequencer, &channel.proven, &one_per_key);
            if round.is_empty() {
                break;
            }
            let (sent, publications) = self.encode(&channel, sequencer, exchanges, &round);
            let mut failed = Vec::new();
            for (index, confirmed) in sent.into_iter().zip(channel.send(publications, deadline).await) {
                let message = sequencer.message(index);
                let outcome = self.outcome(&mut channel, exchanges, message, confirmed);
                if !outcome.is_accepted() {
                    failed.push((message, outcome.clone()));
                }
                sequencer.settle(index, outcome);
            }
            warm_up::refuse_followers(sequencer, &failed, &channel.proven);
            let has_unknown = failed.iter().any(|(_, outcome)| matches!(outcome, Outcome::Unknown(_)));
            if has_unknown || !channel.is_usable() {
                // The channel is not used again, so that a late confirm is not mistaken for one of the next batch.
                let reason = "the channel to RabbitMQ was lost before this was sent";
                return Err(Error::new(ErrorKind::Unavailable, reason));
            }
        }
        self.put_back(channel);
        Ok(())
    }

    /// A channel on which the topics of the unsent messages exist.
    async fn prepare_channel<'a>(
        &self,
        sequencer: &mut KeySequencer<'a>,
        exchanges: &Exchanges<'a>,
    ) -> Result<ConfirmChannel> {
        let channel = self.channel().await?;
        self.declare_topics(&channel, sequencer, exchanges).await?;
        Ok(channel)
    }

    async fn channel(&self) -> Result<ConfirmChannel> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(channel) if channel.is_usable() => return Ok(channel),
                Some(_) => {}
                None => return ConfirmChannel::open(&self.link).await,
            }
        }
    }

    fn put_back(&self, channel: ConfirmChannel) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && channel.is_usable() && !channel.is_stale {
            idle.push(channel);
        }
    }

    /// Declares the topics that this channel has not used yet, or checks that they exist. On another channel, because a
    /// failed check closes it.
    async fn declare_topics<'a>(
        &self,
        channel: &ConfirmChannel,
        sequencer: &mut KeySequencer<'a>,
        exchanges: &Exchanges<'a>,
    ) -> Result<()> {
        let mut refused = HashMap::new();
        for (topic, exchange) in exchanges.iter().filter(|(topic, _)| !channel.proven.has_topic(topic)) {
            let checking = self.link.channel().await?;
            let Err(error) = layout::declare_topic(&checking, exchange, !self.options.create).await else { continue };
            match error::classify(&error) {
                // Publishing may be allowed where declaring is not; the first message shows it.
                ServerError::Denied => {}
                ServerError::Missing | ServerError::Mismatch => {
                    let text = format!("topic {topic} cannot be used: {error}");
                    refused.insert(*topic, Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, text));
                }
                ServerError::TooLarge(_) | ServerError::Transient => {
                    return Err(error::error(format!("topic {topic} was not found"), error));
                }
            }
        }
        sequencer.refuse_unsent(|message| refused.get(&message.topic).cloned());
        Ok(())
    }

    /// Encodes a round, and returns the indexes of what is to be sent. Refuses messages whose headers do not fit into
    /// one frame of the connection.
    fn encode<'a>(
        &self,
        channel: &ConfirmChannel,
        sequencer: &mut KeySequencer<'a>,
        exchanges: &Exchanges<'a>,
        round: &[usize],
    ) -> (Vec<usize>, Vec<Publication<'a>>) {
        let frame = usize::try_from(channel.connection.configuration().frame_max()).unwrap_or(usize::MAX);
        let limit = frame.saturating_sub(1024);
        let (mut sent, mut publications) = (Vec::with_capacity(round.len()), Vec::with_capacity(round.len()));
        for &index in round {
            let message = sequencer.message(index);
            let (properties, bytes) = wire::properties(message, &self.options.source);
            if bytes > limit {
                let text = format!("the headers are {bytes} bytes long; the limit of this connection is {limit}");
                sequencer.settle(index, Outcome::refuse(ErrorCode::TOO_LARGE, text));
                continue;
            }
            let Some(exchange) = exchanges.get(&message.topic).cloned() else { continue };
            let (id, slot) = (message.id.to_string(), names::slot(message));
            sent.push(index);
            publications.push(Publication { exchange, slot, id, properties, payload: &message.payload });
        }
        (sent, publications)
    }

    fn outcome(
        &self,
        channel: &mut ConfirmChannel,
        exchanges: &Exchanges<'_>,
        message: &Message,
        confirmed: Confirmed,
    ) -> Outcome {
        match confirmed {
            Confirmed::Accepted(position) => {
                channel.proven.prove(message);
                Outcome::Accepted(position)
            }
            Confirmed::Returned => {
                channel.proven.forget(&message.topic);
                Outcome::retry_later(ErrorCode::NO_CONSUMER, format!("no group subscribed to {} yet", message.topic))
            }
            Confirmed::Nacked => {
                // A queue that is not up yet refuses a channel's first message; one that accepted messages is full.
                match channel.proven.has_slot(message) {
                    true => self.send_one_per_key(&message.topic),
                    false => channel.is_stale = true,
                }
                channel.proven.forget(&message.topic);
                Outcome::retry_later(ErrorCode::STORAGE_FULL, "a queue refused it: it is full, or is not up yet")
            }
            Confirmed::NotSent(error) => Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()),
            Confirmed::TimedOut(why) => Outcome::Unknown(why.into()),
            Confirmed::Failed(error) => self.failed(channel, exchanges, message, error),
        }
    }

    /// Keeps one message of a key in flight from now on, until the process ends.
    fn send_one_per_key(&self, topic: &TopicName) {
        let mut one_per_key = self.one_per_key.lock().unwrap_or_else(PoisonError::into_inner);
        if one_per_key.topics.insert(topic.clone()) && !one_per_key.always {
            tracing::warn!(%topic, "a full queue refuses messages, sending one message of a key at a time");
        }
    }

    /// The outcome of a message whose channel was closed. The server may name the exchange that caused it; otherwise
    /// the outcome is unknown.
    fn failed(
        &self,
        channel: &ConfirmChannel,
        exchanges: &Exchanges<'_>,
        message: &Message,
        error: lapin::Error,
    ) -> Outcome {
        let is_first = !channel.proven.has_topic(&message.topic)
            && exchanges.get(&message.topic).is_some_and(|exchange| error::is_about(&error, exchange));
        match error::classify(&error) {
            ServerError::Denied if is_first => Outcome::retry_later(ErrorCode::DENIED, error.to_string()),
            ServerError::Missing if is_first => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, error.to_string()),
            ServerError::TooLarge(limit) => {
                self.payload_bytes.fetch_min(limit, Ordering::Relaxed);
                match message.payload.len() > limit {
                    true => too_large(message, limit),
                    false => Outcome::Unknown(error.to_string()),
                }
            }
            _ => Outcome::Unknown(error.to_string()),
        }
    }
}

fn too_large(message: &Message, limit: usize) -> Outcome {
    let text = format!("the payload is {} bytes long; the broker accepts {limit}", message.payload.len());
    Outcome::refuse(ErrorCode::TOO_LARGE, text)
}

fn is_denied(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<lapin::Error>());
    source.is_some_and(|error| error::classify(error) == ServerError::Denied)
}

impl std::fmt::Debug for RabbitPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitPublisher").field("options", &self.options).finish_non_exhaustive()
    }
}
