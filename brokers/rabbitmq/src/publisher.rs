//! Publishing in as few rounds as the order allows, each round in one go.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use landfall_core::{Error, ErrorCode, ErrorKind, Message, Outcome, Publisher, Result, TopicName};
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::config::Options;
use crate::error::{self, ServerError};
use crate::line::{Answer, Line, Parcel};
use crate::link::Link;
use crate::rounds::OneEach;
use crate::{layout, names, rounds, wire};

/// Channels that wait for their next batch.
const IDLE_LINES: usize = 8;

pub(crate) struct RabbitPublisher {
    options: Arc<Options>,
    link: Arc<Link>,
    idle: Mutex<Vec<Line>>,
    /// What the server takes, as far as is known.
    payload_bytes: AtomicUsize,
    one_each: Mutex<OneEach>,
}

/// A batch while it is being published.
struct Work<'a> {
    batch: &'a [Message],
    outcomes: Vec<Option<Outcome>>,
    exchanges: HashMap<&'a TopicName, ShortString>,
}

#[async_trait]
impl Publisher for RabbitPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut work = Work { batch, outcomes: vec![None; batch.len()], exchanges: HashMap::new() };
        let mut pending = self.check(&mut work);
        if !pending.is_empty()
            && let Err(error) = self.send(&mut work, &mut pending).await
        {
            let code = match is_denied(&error) {
                true => ErrorCode::DENIED,
                false => ErrorCode::UNAVAILABLE,
            };
            refuse(&mut work, &pending, &Outcome::retry_later(code, error.to_string()));
        }
        let unsettled = || Outcome::Unknown("the batch was given up".into());
        let mut outcomes: Vec<_> = work.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unsettled)).collect();
        rounds::keep_order(batch, &mut outcomes);
        outcomes
    }
}

impl RabbitPublisher {
    pub(crate) fn new(options: Arc<Options>, link: Arc<Link>) -> Self {
        let payload_bytes = AtomicUsize::new(options.payload_bytes);
        let one_each = Mutex::new(OneEach { always: options.one_per_key, ..OneEach::default() });
        Self { options, link, idle: Mutex::new(Vec::new()), payload_bytes, one_each }
    }

    /// Refuses what is known to be wrong without sending it, and what comes after it of its key. Answers with the rest.
    fn check<'a>(&self, work: &mut Work<'a>) -> Vec<usize> {
        let limit = self.payload_bytes.load(Ordering::Relaxed);
        let mut failed = HashSet::new();
        let mut pending = Vec::with_capacity(work.batch.len());
        for (place, message) in work.batch.iter().enumerate() {
            let entity = message.key.as_ref().map(|key| (&message.topic, key));
            let wrong = if let Err(error) = self.name(&mut work.exchanges, &message.topic) {
                Some(Outcome::refuse(ErrorCode::VALIDATION, error.to_string()))
            } else if message.payload.len() > limit {
                Some(too_large(message, limit))
            } else {
                entity.is_some_and(|entity| failed.contains(&entity)).then(Outcome::behind_predecessor)
            };
            match wrong {
                Some(wrong) => {
                    failed.extend(entity);
                    work.outcomes[place] = Some(wrong);
                }
                None => pending.push(place),
            }
        }
        pending
    }

    /// Finds the exchange of `topic` for this batch.
    fn name<'a>(&self, exchanges: &mut HashMap<&'a TopicName, ShortString>, topic: &'a TopicName) -> Result<()> {
        if !exchanges.contains_key(topic) {
            exchanges.insert(topic, names::topic(&self.options.prefix, topic)?);
        }
        Ok(())
    }

    async fn send(&self, work: &mut Work<'_>, pending: &mut Vec<usize>) -> Result<()> {
        // Asked first: a server without room does not even open a channel.
        let connection = self.link.connection().await?;
        if connection.status().blocked() {
            refuse(work, pending, &Outcome::retry_later(ErrorCode::STORAGE_FULL, error::ALARM));
            return Ok(());
        }
        let deadline = Instant::now() + self.options.timeout;
        // An alarm that is raised now keeps whatever is asked for waiting. Nothing was sent yet.
        let Ok(ready) = tokio::time::timeout_at(deadline, self.ready(work, pending)).await else {
            self.link.give_up(&connection).await;
            return Err(Error::new(ErrorKind::Unavailable, "RabbitMQ did not make a channel ready in time"));
        };
        let mut line = ready?;
        while !pending.is_empty() {
            let one_each = self.one_each.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let now = rounds::next(work.batch, pending, &line.proven, &one_each);
            let parcels = self.pack(&line, work, &now);
            let answers = line.send(parcels, deadline).await;
            let sent: Vec<usize> = now.iter().copied().filter(|place| work.outcomes[*place].is_none()).collect();
            for (place, answer) in sent.into_iter().zip(answers) {
                let outcome = self.outcome(&mut line, work, place, answer);
                work.outcomes[place] = Some(outcome);
            }
            rounds::settle_followers(work.batch, pending, &mut work.outcomes, &now, &line.proven);
            if now.iter().any(|place| matches!(work.outcomes[*place], Some(Outcome::Unknown(_)))) || !line.is_usable() {
                // A late confirm must not be taken for one of the next batch, so the channel is given up.
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "the channel to RabbitMQ was lost before this was sent",
                ));
            }
        }
        self.put_back(line);
        Ok(())
    }

    /// A channel for what is `pending`, once its topics were found on it.
    async fn ready(&self, work: &mut Work<'_>, pending: &mut Vec<usize>) -> Result<Line> {
        let line = self.line().await?;
        self.find_topics(&line, work, pending).await?;
        Ok(line)
    }

    async fn line(&self) -> Result<Line> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(line) if line.is_usable() => return Ok(line),
                Some(_) => {}
                None => return Line::open(&self.link).await,
            }
        }
    }

    fn put_back(&self, line: Line) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_LINES && line.is_usable() && !line.is_stale {
            idle.push(line);
        }
    }

    /// Makes the topics that this channel has not used yet, or looks for them. On a channel of its own, because
    /// looking in vain closes it.
    async fn find_topics(&self, line: &Line, work: &mut Work<'_>, pending: &mut Vec<usize>) -> Result<()> {
        let unknown: Vec<_> = work.exchanges.iter().filter(|(topic, _)| !line.proven.has_topic(topic)).collect();
        let mut refused = HashMap::new();
        for (topic, exchange) in unknown {
            let channel = self.link.channel().await?;
            let Err(error) = layout::declare_topic(&channel, exchange, !self.options.create).await else { continue };
            match error::classify(&error) {
                // Publishing may be allowed where making is not; the first message finds out.
                ServerError::Denied => {}
                ServerError::Missing | ServerError::Mismatch => {
                    let text = format!("topic {topic} cannot be used: {error}");
                    refused.insert((*topic).clone(), Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, text));
                }
                ServerError::TooLarge(_) | ServerError::Transient => {
                    return Err(error::error(format!("topic {topic} was not found"), error));
                }
            }
        }
        pending.retain(|&place| match refused.get(&work.batch[place].topic) {
            Some(outcome) => {
                work.outcomes[place] = Some(outcome.clone());
                false
            }
            None => true,
        });
        Ok(())
    }

    /// What is to be sent now. Headers must fit into one frame of the connection.
    fn pack<'a>(&self, line: &Line, work: &mut Work<'a>, now: &[usize]) -> Vec<Parcel<'a>> {
        let frame = usize::try_from(line.connection.configuration().frame_max()).unwrap_or(usize::MAX);
        let limit = frame.saturating_sub(1024);
        let mut parcels = Vec::with_capacity(now.len());
        for &place in now {
            let message = &work.batch[place];
            let (properties, bytes) = wire::properties(message, &self.options.source);
            if bytes > limit {
                let text = format!("the headers are {bytes} bytes long; the limit of this connection is {limit}");
                work.outcomes[place] = Some(Outcome::refuse(ErrorCode::TOO_LARGE, text));
                continue;
            }
            let Some(exchange) = work.exchanges.get(&message.topic).cloned() else { continue };
            let (id, slot) = (message.id.to_string(), names::slot(message));
            parcels.push(Parcel { exchange, slot, id, properties, payload: &message.payload });
        }
        parcels
    }

    fn outcome(&self, line: &mut Line, work: &Work<'_>, place: usize, answer: Answer) -> Outcome {
        let message = &work.batch[place];
        match answer {
            Answer::Accepted(position) => {
                line.proven.prove(message);
                Outcome::Accepted(position)
            }
            Answer::Returned => {
                line.proven.forget(&message.topic);
                Outcome::retry_later(ErrorCode::NO_CONSUMER, format!("no group subscribed to {} yet", message.topic))
            }
            Answer::Nacked => {
                // One that is not up yet refuses the first message; one that took messages before is full.
                match line.proven.has_slot(message) {
                    true => self.send_one_each(&message.topic),
                    false => line.is_stale = true,
                }
                line.proven.forget(&message.topic);
                let text = "a queue turned it down: it is full, or is not up yet";
                Outcome::retry_later(ErrorCode::STORAGE_FULL, text)
            }
            Answer::NotSent(error) => Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()),
            Answer::Silence(why) => Outcome::Unknown(why.into()),
            Answer::Failed(error) => self.failed(line, work, message, error),
        }
    }

    /// From now on, for as long as this process lives.
    fn send_one_each(&self, topic: &TopicName) {
        let mut one_each = self.one_each.lock().unwrap_or_else(PoisonError::into_inner);
        if one_each.topics.insert(topic.clone()) && !one_each.always {
            let advice = "a full queue turns messages down: from now on one message of a key is sent at a time";
            tracing::warn!(topic = %topic, "{advice}");
        }
    }

    /// The channel was closed. Whose fault it was is known if the server named it; the others are unknown.
    fn failed(&self, line: &Line, work: &Work<'_>, message: &Message, error: lapin::Error) -> Outcome {
        let is_first = !line.proven.has_topic(&message.topic)
            && work.exchanges.get(&message.topic).is_some_and(|exchange| error::is_about(&error, exchange));
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

fn refuse(work: &mut Work<'_>, pending: &[usize], outcome: &Outcome) {
    for place in pending {
        work.outcomes[*place] = Some(outcome.clone());
    }
}

fn too_large(message: &Message, limit: usize) -> Outcome {
    let text = format!("the payload is {} bytes long; the broker takes {limit}", message.payload.len());
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
