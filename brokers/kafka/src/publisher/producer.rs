//! The producer in use.
//!
//! A producer that could not deliver everything is retired as a whole and purged before the outcomes are returned. So
//! none of its messages is sent later, while the caller sends the same ones again
//! (`docs/adr/0014-kafka-replace-the-producer-after-unknown.md`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};

use crate::client::{ClientErrors, blocking};
use crate::config::Options;
use crate::error::error;
use crate::publisher::delivery_reports::{ReportContext, Ticket};

pub(crate) type NativeProducer = ThreadedProducer<ReportContext>;
pub(crate) type Record<'a> = BaseRecord<'a, str, [u8], Box<Ticket>>;

/// The largest record batch that librdkafka sends, unless a topic accepts less.
pub(crate) const BATCH_BYTES: usize = 1_000_000;
/// Room for what surrounds the records of a batch: more than Kafka needs.
const BATCH_FRAME_BYTES: usize = 256;

/// A producer that has reached the cluster and can be retired.
pub(crate) struct RetirableProducer {
    /// `None` once it is retired. A caller holds the lock while it hands over a batch: the whole batch is handed over
    /// before the producer is retired, or nothing of it.
    producer: RwLock<Option<Arc<NativeProducer>>>,
    batch_bytes: usize,
}

impl RetirableProducer {
    pub(crate) fn new(producer: NativeProducer, batch_bytes: usize) -> Self {
        Self { producer: RwLock::new(Some(Arc::new(producer))), batch_bytes }
    }

    /// The largest record batch that it sends.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// The producer itself, for calls that block; `None` once it is retired.
    pub(crate) fn producer(&self) -> Option<Arc<NativeProducer>> {
        self.producer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands over a batch: `hand_over` calls its argument for each record. Returns `None`, and sends nothing, if the
    /// producer is retired.
    pub(crate) fn with<T>(&self, hand_over: impl FnOnce(&dyn Fn(Record<'_>) -> HandOver) -> T) -> Option<T> {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        let producer = producer.as_ref()?;
        Some(hand_over(&|record| match producer.send(record) {
            Ok(()) => Ok(()),
            Err((cause, record)) => {
                record.delivery_opaque.return_unused();
                Err(cause.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))
            }
        }))
    }

    /// Whether librdkafka has stopped it: the cluster permanently refused a message with successors in flight.
    pub(crate) fn is_broken(&self) -> bool {
        let producer = self.producer.read().unwrap_or_else(PoisonError::into_inner);
        producer.as_ref().is_none_or(|producer| producer.client().fatal_error().is_some())
    }

    /// Retires it: when this returns, it sends nothing more.
    pub(crate) async fn retire(&self) {
        let producer = self.producer.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(producer) = producer else { return };
        let purged = blocking(move || {
            producer.purge(PurgeConfig::default().queue().inflight());
            // Dropping it reports the messages that were in it.
            drop(producer);
        });
        if let Err(error) = purged.await {
            tracing::warn!(%error, "retiring a producer failed");
        }
    }
}

/// Whether librdkafka accepted a record into its queue.
pub(crate) type HandOver = std::result::Result<(), RDKafkaErrorCode>;

impl Drop for RetirableProducer {
    fn drop(&mut self) {
        // Dropping the producer waits for its threads, which would block a task.
        if let Some(producer) = self.producer.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            std::thread::spawn(move || drop(producer));
        }
    }
}

/// The producer in use, created on demand.
pub(crate) struct CurrentProducer {
    options: Arc<Options>,
    current: Mutex<Option<Arc<RetirableProducer>>>,
    creating: tokio::sync::Mutex<()>,
}

impl CurrentProducer {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Self { options, current: Mutex::default(), creating: tokio::sync::Mutex::default() }
    }

    /// A producer that has reached the cluster and delivered everything so far. A new one asks the cluster for
    /// `topic`. A producer whose record batches may exceed `message_bytes` is replaced, since a topic would refuse
    /// them.
    pub(crate) async fn get(&self, topic: &str, message_bytes: usize) -> Result<Arc<RetirableProducer>> {
        let fits = |producer: &Arc<RetirableProducer>| producer.batch_bytes < message_bytes;
        if let Some(producer) = self.current().clone().filter(fits) {
            return Ok(producer);
        }
        let _one_at_a_time = self.creating.lock().await;
        if let Some(producer) = self.current().clone().filter(fits) {
            return Ok(producer);
        }
        let batch_bytes = batch_bytes(message_bytes);
        let (options, topic) = (self.options.clone(), topic.to_owned());
        let producer = blocking(move || connect(&options, &topic, batch_bytes)).await??;
        let producer = Arc::new(RetirableProducer::new(producer, batch_bytes));
        // The one that is replaced still delivers what it has.
        *self.current() = Some(producer.clone());
        Ok(producer)
    }

    pub(crate) async fn retire(&self, producer: &Arc<RetirableProducer>) {
        self.current().take_if(|current| Arc::ptr_eq(current, producer));
        producer.retire().await;
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<RetirableProducer>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The largest record batch for a topic that accepts messages of `message_bytes`.
pub(crate) fn batch_bytes(message_bytes: usize) -> usize {
    BATCH_BYTES.min(message_bytes.saturating_sub(BATCH_FRAME_BYTES)).max(1)
}

/// Blocks until the cluster has answered, or the timeout has passed.
fn connect(options: &Options, topic: &str, batch_bytes: usize) -> Result<NativeProducer> {
    let client_errors = Arc::new(ClientErrors::default());
    let producer =
        NativeProducer::from_config_and_context(&options.producer(batch_bytes), ReportContext(client_errors.clone()))
            .map_err(|cause| error("the producer cannot be created", cause))?;
    match producer.client().fetch_metadata(Some(topic), options.connect_timeout) {
        Ok(_) => Ok(producer),
        Err(cause) => {
            // The thread that receives the reason may be a moment behind.
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
