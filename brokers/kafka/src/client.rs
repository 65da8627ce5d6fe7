//! What all clients of one adapter have in common: their settings, and what they hear of the cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Holder, Result};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::config::{Acks, Options};

/// What librdkafka tells on the side: whether we are turned away, which no call of it answers with.
#[derive(Debug, Default)]
pub(crate) struct Rumours {
    denied: Mutex<Option<String>>,
}

impl Rumours {
    /// Why we were turned away, if we were since the last call of [`Rumours::forget`].
    pub(crate) fn denied(&self) -> Option<String> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn forget(&self) {
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn hear(&self, error: &KafkaError, reason: &str) {
        let denied = matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed)
        );
        if denied {
            *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
        tracing::debug!(%error, reason, "Kafka's client reports trouble");
    }
}

/// For clients that only ask.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listening(pub(crate) Arc<Rumours>);

impl ClientContext for Listening {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.hear(&error, reason);
    }
}

impl rdkafka::consumer::ConsumerContext for Listening {}

/// librdkafka's own lines. It calls a lost connection an error, which is none as long as it reconnects.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(target: "librdkafka", facility, message);
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::warn!(target: "librdkafka", facility, message);
        }
        _ => tracing::debug!(target: "librdkafka", facility, message),
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

impl Options {
    /// For every client.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.hosts.join(","))
            .set("client.id", &self.source)
            .set("socket.keepalive.enable", "true")
            // Topics are made on purpose and with safe settings, never by asking for them.
            .set("allow.auto.create.topics", "false")
            // A cluster that comes back is found at once, however long it was gone.
            .set("reconnect.backoff.ms", "100")
            .set("reconnect.backoff.max.ms", "1000")
            .set("message.max.bytes", self.message_bytes.to_string())
            .set_log_level(RDKafkaLogLevel::Warning);
        let protocol = match (self.user.is_some(), self.tls) {
            (false, false) => "plaintext",
            (false, true) => "ssl",
            (true, false) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            config.set("sasl.mechanisms", &self.sasl).set("sasl.username", user).set("sasl.password", password);
        }
        let files = [
            ("ssl.ca.location", &self.ca),
            ("ssl.certificate.location", &self.certificate),
            ("ssl.key.location", &self.key),
        ];
        for (name, file) in files {
            if let Some(file) = file {
                config.set(name, file.to_string_lossy());
            }
        }
        config
    }

    /// For the client that publishes. `batch_bytes` is what it may send in one piece.
    pub(crate) fn producer(&self, batch_bytes: usize) -> ClientConfig {
        let mut config = self.client();
        config
            .set("acks", self.acks.as_str())
            // The partition that Java's clients, and `Key::partition`, give to a key.
            .set("partitioner", "murmur2_random")
            .set("compression.type", &self.compression)
            .set("linger.ms", (self.linger.as_secs_f64() * 1000.0).to_string())
            .set("batch.size", batch_bytes.to_string())
            // Nothing is given up on one by one: a message that is, while its successor goes out, is a gap in its key.
            // Whoever waits gives up on everything at once (`producer.rs`).
            .set("message.timeout.ms", "0");
        match self.acks {
            Acks::All => config
                .set("enable.idempotence", "true")
                .set("max.in.flight.requests.per.connection", "5")
                // What the cluster refuses for good stops the producer, in place of going on behind the gap.
                .set("enable.gapless.guarantee", "true"),
            Acks::Leader | Acks::None => {
                config.set("enable.idempotence", "false").set("max.in.flight.requests.per.connection", "1")
            }
        };
        config
    }

    /// For the client that publishes as `holder` and can be silenced.
    pub(crate) fn transactional_producer(&self, holder: &Holder, batch_bytes: usize) -> ClientConfig {
        let mut config = self.producer(batch_bytes);
        config
            .set("transactional.id", format!("{}landfall-{holder}", self.prefix))
            // What a dead relay left open holds up its readers until somebody silences it, or for this long.
            .set("transaction.timeout.ms", millis(2 * self.timeout.max(Duration::from_secs(5))))
            // A gap ends the transaction, and nobody reads behind it.
            .set("enable.gapless.guarantee", "false");
        config
    }

    /// For a member of `group`.
    pub(crate) fn member(&self, group: &str) -> ClientConfig {
        let mut config = self.reader();
        config
            .set("group.id", group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(self.session_timeout))
            .set("heartbeat.interval.ms", millis((self.session_timeout / 6).min(Duration::from_secs(3))))
            .set("auto.offset.reset", "earliest")
            // Saved is only what was stored by name, which is the finished prefix of each partition, and it is saved
            // before a partition goes to somebody else.
            .set("enable.auto.offset.store", "false")
            .set("enable.auto.commit", "true")
            .set("auto.commit.interval.ms", millis(self.commit_interval));
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        config
    }

    /// For whoever reads without a group.
    pub(crate) fn reader(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", "100")
            .set("fetch.error.backoff.ms", "100")
            // What is read ahead. Beyond it nothing is fetched for a moment, which is a second unless it is said here: at
            // the speed of memory a second is long.
            .set("queued.min.messages", "10000")
            .set("queued.max.messages.kbytes", "16384")
            .set("fetch.queue.backoff.ms", "10");
        config
    }
}

/// Runs what blocks where it may.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let work = tokio::task::spawn_blocking(work).await;
    work.map_err(|error| Error::new(ErrorKind::Internal, "a call of Kafka's client was broken off").with_source(error))
}
