//! Handing messages over and waiting for the cluster's answer to each.
//!
//! A batch goes out whole, as many requests at once as Kafka keeps in order for one producer, so that a thousand
//! messages cost about one round trip. The order of a key holds because the producer numbers its requests and the
//! cluster takes none behind a missing one, because what is refused for good stops the producer, and because a producer
//! that did not bring everything across in time is given up as a whole (`docs/adr/0014-kafka-replace-the-producer-after-unknown.md`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{ErrorCode, FencedPublisher, Holder, Key, Message, Outcome, Publisher, TopicName};

use crate::config::{Acks, Options};
use crate::error::{outcome, unsent};
use crate::fenced::FencedKafkaPublisher;
use crate::handed::{Handed, Known};
use crate::line::{Handing, Line, Lines, Record};
use crate::topics::Topics;
use crate::wire;

/// How long a producer that was given up may take to answer for what was in it.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) struct KafkaPublisher {
    options: Arc<Options>,
    topics: Arc<Topics>,
    lines: Lines,
}

/// Where messages of one topic go.
pub(crate) struct Target {
    name: String,
    pub(crate) message_bytes: usize,
}

/// For each topic of a batch where its messages go, or why they go nowhere.
pub(crate) type Targets<'a> = HashMap<&'a TopicName, Result<Target, Outcome>>;

/// Of one topic and key only one thing may follow another.
type Chain<'a> = (&'a TopicName, &'a Key);

impl KafkaPublisher {
    pub(crate) fn new(options: Arc<Options>, topics: Arc<Topics>) -> Self {
        Self { lines: Lines::new(options.clone()), options, topics }
    }

    pub(crate) async fn targets<'a>(&self, batch: &'a [Message]) -> Targets<'a> {
        let mut targets = Targets::new();
        // A cluster that says nothing is asked once, and not once for each topic.
        let mut unreachable = None;
        for topic in batch.iter().map(|message| &message.topic) {
            if targets.contains_key(topic) {
                continue;
            }
            let asked = Instant::now();
            let target = match &unreachable {
                Some(outcome) => Err(Outcome::clone(outcome)),
                None => self.target(topic).await.map_err(|error| {
                    let outcome = unsent(&error);
                    let is_silent = error.is_temporary() && asked.elapsed() >= self.options.connect_timeout;
                    unreachable = is_silent.then(|| outcome.clone());
                    outcome
                }),
            };
            targets.insert(topic, target);
        }
        targets
    }

    async fn target(&self, topic: &TopicName) -> landfall_core::Result<Target> {
        Ok(Target { name: self.topics.name(topic)?, message_bytes: self.topics.ready(topic).await? })
    }

    /// Sends those of `batch` that have no outcome yet, as far as their order allows it, and waits for the answers.
    async fn send(&self, batch: &[Message], targets: &Targets<'_>, known: Known) -> Known {
        let reachable = || targets.values().flatten();
        let smallest = reachable().map(|target| target.message_bytes).min().unwrap_or_default();
        let Some(first) = reachable().next() else {
            let handed = Handed::new(known);
            self.hand_over(
                &|_| Handing::Refused(rdkafka::error::RDKafkaErrorCode::Fail, None),
                &handed,
                batch,
                targets,
            );
            return handed.take();
        };
        // One that somebody else gives up in this moment takes nothing more, so there is another.
        loop {
            let line = match self.lines.open(&first.name, smallest).await {
                Ok(line) => line,
                Err(error) => {
                    let outcome = unsent(&error);
                    return known.into_iter().map(|known| known.or_else(|| Some(outcome.clone()))).collect();
                }
            };
            let handed = Handed::new(known.clone());
            if line.with(|send| self.hand_over(send, &handed, batch, targets)) {
                return self.wait(&line, &handed).await;
            }
        }
    }

    /// Hands over what has no outcome yet, as far as the order of keys allows it.
    pub(crate) fn hand_over(
        &self,
        send: &dyn Fn(Record<'_>) -> Handing,
        handed: &Arc<Handed>,
        batch: &[Message],
        targets: &Targets<'_>,
    ) {
        let known = handed.known();
        let mut stopped: HashSet<Chain<'_>> = HashSet::new();
        let mut running: HashSet<Chain<'_>> = HashSet::new();
        for (place, message) in batch.iter().enumerate() {
            let chain = message.key.as_ref().map(|key| (&message.topic, key));
            if let Some(outcome) = &known[place] {
                stopped.extend(chain.filter(|_| !outcome.is_accepted()));
                continue;
            }
            if chain.is_some_and(|chain| stopped.contains(&chain)) {
                handed.note(place, Outcome::behind_predecessor());
                continue;
            }
            // Without numbered requests the next of a key waits for the answer to the one before.
            if self.options.acks != Acks::All && chain.is_some_and(|chain| !running.insert(chain)) {
                continue;
            }
            let refused = match targets.get(&message.topic) {
                Some(Ok(target)) => self.hand(send, handed, place, message, target),
                Some(Err(outcome)) => Some(outcome.clone()),
                None => None,
            };
            if let Some(refused) = refused {
                handed.note(place, refused);
                stopped.extend(chain);
            }
        }
    }

    /// Hands one message over; its outcome if it was refused on the spot.
    fn hand(
        &self,
        send: &dyn Fn(Record<'_>) -> Handing,
        handed: &Arc<Handed>,
        place: usize,
        message: &Message,
        target: &Target,
    ) -> Option<Outcome> {
        let (headers, bytes) = wire::headers(message, &self.options.source);
        if bytes > target.message_bytes {
            let reason = format!("the message takes {bytes} bytes and the topic takes {}", target.message_bytes);
            return Some(Outcome::refuse(ErrorCode::TOO_LARGE, reason));
        }
        let record = Record::with_opaque_to(&target.name, handed.hand(place)).headers(headers);
        let mut record = record.payload(&message.payload[..]);
        if let Some(key) = &message.key {
            record = record.key(key.as_str());
        }
        match send(record) {
            Handing::Taken => None,
            Handing::Refused(code, ticket) => {
                if let Some(ticket) = ticket {
                    ticket.return_unused();
                }
                Some(outcome(code))
            }
        }
    }

    async fn wait(&self, line: &Arc<Line>, handed: &Handed) -> Known {
        let in_time = tokio::time::timeout(self.options.timeout, handed.finish()).await.is_ok();
        if !in_time || (handed.has_failures() && line.is_broken()) {
            tracing::warn!(in_time, "a producer did not bring everything across and is replaced");
            self.topics.forget();
            self.lines.give_up(line).await;
            // It answers for what was in it as it ends.
            let _answered = tokio::time::timeout(LAST_WORDS, handed.finish()).await;
        }
        handed.take()
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let targets = self.targets(batch).await;
        let mut known: Known = vec![None; batch.len()];
        // With numbered requests once is enough; without them each round brings every key one further.
        while known.iter().any(Option::is_none) {
            known = self.send(batch, &targets, known).await;
        }
        known.into_iter().flatten().collect()
    }

    fn fenced(&self, holder: &Holder) -> Option<Arc<dyn FencedPublisher>> {
        let (options, topics) = (self.options.clone(), self.topics.clone());
        self.options.fencing.then(|| Arc::new(FencedKafkaPublisher::new(options, topics, holder.clone())) as _)
    }
}
