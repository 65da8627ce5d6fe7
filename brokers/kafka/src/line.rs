//! The producer in use. One that could not bring everything across is given up as a whole, together with what is still
//! in it, before anybody is told: so nothing of it goes out later, behind the back of whoever sends the same again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};

use crate::client::{ClientErrors, blocking};
use crate::config::Options;
use crate::error::error;
use crate::handed::{Reports, Ticket};

pub(crate) type Native = ThreadedProducer<Reports>;
pub(crate) type Record<'a> = BaseRecord<'a, str, [u8], Box<Ticket>>;

/// What librdkafka sends in one piece unless somebody takes less.
pub(crate) const BATCH_BYTES: usize = 1_000_000;
/// What surrounds a piece: more than Kafka needs for it.
const BATCH_FRAME_BYTES: usize = 256;

/// A producer that reached the cluster.
pub(crate) struct Line {
    /// `None` once it was given up. Whoever hands a batch over holds the lock for all of it: a batch goes in whole
    /// before that, or not at all.
    producer: RwLock<Option<Arc<Native>>>,
    batch_bytes: usize,
}

impl Line {
    pub(crate) fn new(producer: Native, batch_bytes: usize) -> Self {
        Self { producer: RwLock::new(Some(Arc::new(producer))), batch_bytes }
    }

    /// What it sends in one piece.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// The producer itself, for calls that block; `None` once it was given up.
    pub(crate) fn producer(&self) -> Option<Arc<Native>> {
        self.producer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets `hand_over` send through it; `false` if it was given up already and nothing was sent.
    pub(crate) fn with(&self, hand_over: impl FnOnce(&dyn Fn(Record<'_>) -> Handing)) -> bool {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let Some(producer) = &*producer else { return false };
        hand_over(&|record| match producer.send(record) {
            Ok(()) => Handing::Taken,
            Err((cause, record)) => Handing::Refused(
                cause.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
                Some(record.delivery_opaque),
            ),
        });
        true
    }

    /// Whether librdkafka stopped it, because something was refused for good behind which more was on its way.
    pub(crate) fn is_broken(&self) -> bool {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        producer.as_ref().is_none_or(|producer| producer.client().fatal_error().is_some())
    }

    /// Gives it up: from here on it sends nothing more.
    pub(crate) async fn give_up(&self) {
        let producer = self.producer.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(producer) = producer else { return };
        let purged = blocking(move || {
            producer.purge(PurgeConfig::default().queue().inflight());
            // What was in it is answered for while it is taken down.
            drop(producer);
        });
        if let Err(error) = purged.await {
            tracing::warn!(%error, "a producer was not taken down in order");
        }
    }
}

/// What librdkafka did with a record.
pub(crate) enum Handing {
    Taken,
    /// With the ticket, unless it was never taken.
    Refused(RDKafkaErrorCode, Option<Box<Ticket>>),
}

impl Drop for Line {
    fn drop(&mut self) {
        // Taking it down waits for threads, which a task must not.
        if let Some(producer) = self.producer.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            std::thread::spawn(move || drop(producer));
        }
    }
}

/// The line in use, made when it is needed.
pub(crate) struct Lines {
    options: Arc<Options>,
    current: Mutex<Option<Arc<Line>>>,
    making: tokio::sync::Mutex<()>,
}

impl Lines {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Self { options, current: Mutex::default(), making: tokio::sync::Mutex::default() }
    }

    /// A line that reached the cluster once, and so far brought everything across. `topic` is what the cluster is asked
    /// for. One that sends more in a piece than `message_bytes` is replaced: some topic would refuse the piece.
    pub(crate) async fn open(&self, topic: &str, message_bytes: usize) -> Result<Arc<Line>> {
        let fits = |line: &Arc<Line>| line.batch_bytes < message_bytes;
        if let Some(line) = self.current().clone().filter(fits) {
            return Ok(line);
        }
        let _one_at_a_time = self.making.lock().await;
        if let Some(line) = self.current().clone().filter(fits) {
            return Ok(line);
        }
        let batch_bytes = batch_bytes(message_bytes);
        let (options, topic) = (self.options.clone(), topic.to_owned());
        let producer = blocking(move || connect(&options, &topic, batch_bytes)).await??;
        let line = Arc::new(Line::new(producer, batch_bytes));
        // One that is replaced brings across what it has.
        *self.current() = Some(line.clone());
        Ok(line)
    }

    pub(crate) async fn give_up(&self, line: &Arc<Line>) {
        self.current().take_if(|current| Arc::ptr_eq(current, line));
        line.give_up().await;
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Line>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What may be sent in one piece to a topic that takes messages of `message_bytes`.
pub(crate) fn batch_bytes(message_bytes: usize) -> usize {
    BATCH_BYTES.min(message_bytes.saturating_sub(BATCH_FRAME_BYTES)).max(1)
}

/// Blocks until the cluster answered, or was not reached in time.
fn connect(options: &Options, topic: &str, batch_bytes: usize) -> Result<Native> {
    let client_errors = Arc::new(ClientErrors::default());
    let producer = Native::from_config_and_context(&options.producer(batch_bytes), Reports(client_errors.clone()))
        .map_err(|cause| error("the producer cannot be made", cause))?;
    match producer.client().fetch_metadata(Some(topic), options.connect_timeout) {
        Ok(_) => Ok(producer),
        Err(cause) => {
            // The thread that hears why may be a moment behind.
            let denied = client_errors.denied().or_else(|| {
                std::thread::sleep(Duration::from_millis(200));
                client_errors.denied()
            });
            match denied {
                Some(why) => Err(Error::new(ErrorKind::Conflict, format!("the cluster turns us away: {why}"))),
                None => Err(error("the cluster cannot be reached", cause)),
            }
        }
    }
}
