//! Configuration of the librdkafka clients, and the errors that librdkafka reports by callback.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Holder, Result};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use crate::config::{Acks, Options};

/// The shortest `max.poll.interval.ms`. A subscriber polls more often, except while it probes the cluster for a few
/// seconds.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How long a reader waits for the answer to a request. A connection that has fallen silent is closed then.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between requests while a partition has no leader.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Errors that librdkafka reports by callback only. No API call returns a failed authentication.
#[derive(Debug, Default)]
pub(crate) struct ClientErrors {
    denied: Mutex<Option<String>>,
}

impl ClientErrors {
    /// Returns why authentication failed, if it failed since the last call of [`ClientErrors::clear`].
    pub(crate) fn denied(&self) -> Option<String> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn clear(&self) {
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn record(&self, error: &KafkaError, reason: &str) {
        let denied = matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed)
        );
        if denied {
            *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
        tracing::debug!(%error, reason, "librdkafka reported an error");
    }
}

/// Context of clients that read or administer: logs, and records errors.
#[derive(Debug, Clone, Default)]
pub(crate) struct ErrorContext(pub(crate) Arc<ClientErrors>);

impl ClientContext for ErrorContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.record(&error, reason);
    }
}

impl rdkafka::consumer::ConsumerContext for ErrorContext {}

/// Forwards librdkafka's log lines.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match severity(level, facility, message) {
        tracing::Level::ERROR => tracing::error!(target: "librdkafka", facility, message),
        tracing::Level::WARN => tracing::warn!(target: "librdkafka", facility, message),
        _ => tracing::debug!(target: "librdkafka", facility, message),
    }
}

/// Returns how serious a log line is for an operator. librdkafka's `Error` is a warning: it includes lost connections,
/// which it re-establishes. Remarks on settings that this crate chose are not for operators. One is on
/// `enable.gapless.guarantee`, which librdkafka calls experimental: the order of a key needs it.
fn severity(level: RDKafkaLogLevel, facility: &str, message: &str) -> tracing::Level {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => tracing::Level::ERROR,
        _ if facility == "CONFWARN" && message.contains("experimental") => tracing::Level::DEBUG,
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => tracing::Level::WARN,
        _ => tracing::Level::DEBUG,
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

impl Options {
    /// Settings that all clients share.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", self.hosts.join(","))
            .set("client.id", &self.source)
            .set("socket.keepalive.enable", "true")
            // Only `Topics::create` creates topics, with safe settings. A metadata request never does.
            .set("allow.auto.create.topics", "false")
            // Reconnect within a second of the cluster's return, however long the outage was.
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

    /// Settings of a producer. `batch_bytes` is the largest batch of one request.
    pub(crate) fn producer(&self, batch_bytes: usize) -> ClientConfig {
        let mut config = self.client();
        config
            .set("acks", self.acks.as_str())
            // Chooses the same partition for a key as the Java client and `Key::partition`.
            .set("partitioner", "murmur2_random")
            .set("compression.type", &self.compression)
            .set("linger.ms", (self.linger.as_secs_f64() * 1000.0).to_string())
            .set("batch.size", batch_bytes.to_string())
            // No per-message timeout: dropping one message while its successor is sent would leave a gap in the key.
            // The publisher gives up on all of them at once (`producer.rs`).
            .set("message.timeout.ms", "0");
        match self.acks {
            Acks::All => config
                .set("enable.idempotence", "true")
                .set("max.in.flight.requests.per.connection", "5")
                // A permanent refusal stops the producer. Without this it would continue behind the gap.
                .set("enable.gapless.guarantee", "true"),
            Acks::Leader | Acks::None => {
                config.set("enable.idempotence", "false").set("max.in.flight.requests.per.connection", "1")
            }
        };
        config
    }

    /// Settings of the transactional producer of `holder`, which a successor can fence.
    pub(crate) fn transactional_producer(&self, holder: &Holder, batch_bytes: usize) -> ClientConfig {
        let mut config = self.producer(batch_bytes);
        config
            .set("transactional.id", format!("{}landfall-{holder}", self.prefix))
            // An open transaction of a dead relay blocks its readers until a successor fences it, or for this long.
            .set("transaction.timeout.ms", millis(2 * self.timeout.max(Duration::from_secs(5))))
            // Not needed: a gap aborts the transaction, so no consumer reads what follows it.
            .set("enable.gapless.guarantee", "false");
        config
    }

    /// Settings of a member of `group`.
    pub(crate) fn member(&self, group: &str) -> ClientConfig {
        let mut config = self.reader();
        config
            .set("group.id", group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(self.session_timeout))
            .set("heartbeat.interval.ms", millis((self.session_timeout / 6).min(Duration::from_secs(3))))
            // librdkafka waits this long for the answer to a request to join. The default of five minutes is too long:
            // if the connection is silent meanwhile, the member sends no heartbeats and has no partitions.
            .set("max.poll.interval.ms", millis(self.session_timeout.max(MIN_POLL_INTERVAL)))
            .set("auto.offset.reset", "earliest")
            // Only explicitly stored offsets are committed: the finished prefix of each partition. librdkafka commits
            // them before a partition moves to another member.
            .set("enable.auto.offset.store", "false")
            .set("enable.auto.commit", "true")
            .set("auto.commit.interval.ms", millis(self.commit_interval));
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        config
    }

    /// Settings of a consumer without a group.
    pub(crate) fn reader(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("isolation.level", "read_committed")
            // The default is a minute. A member that cannot ask for its coordinator meanwhile has no partitions.
            .set("socket.timeout.ms", millis(REQUEST_TIMEOUT))
            .set("fetch.wait.max.ms", "100")
            .set("fetch.error.backoff.ms", "100")
            // Limits of the prefetch queue. When it is full, librdkafka pauses fetching for `fetch.queue.backoff.ms`.
            // The default of one second is too long: a consumer empties the queue much sooner.
            .set("queued.min.messages", "10000")
            .set("queued.max.messages.kbytes", "16384")
            .set("fetch.queue.backoff.ms", "10");
        config
    }
}

/// Runs a blocking call of librdkafka on tokio's blocking threads.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let work = tokio::task::spawn_blocking(work).await;
    let failed =
        |error| Error::new(ErrorKind::Internal, "a call of librdkafka panicked or was cancelled").with_source(error);
    work.map_err(failed)
}

/// Returns the first offset of a partition and the one after its last record. Blocks.
/// Waits for the election of a leader, for example just after the topic was created.
pub(crate) fn watermarks(
    client: &BaseConsumer<ErrorContext>,
    topic: &str,
    partition: i32,
    timeout: Duration,
) -> KafkaResult<(i64, i64)> {
    let deadline = Instant::now() + timeout;
    loop {
        match client.fetch_watermarks(topic, partition, timeout) {
            Err(cause) if has_no_leader(&cause) && Instant::now() < deadline => {
                std::thread::sleep(LEADER_POLL_INTERVAL);
            }
            answer => return answer,
        }
    }
}

fn has_no_leader(cause: &KafkaError) -> bool {
    matches!(
        cause.rdkafka_error_code(),
        Some(RDKafkaErrorCode::NotLeaderForPartition | RDKafkaErrorCode::LeaderNotAvailable)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remark_on_an_experimental_setting_does_not_reach_operators() {
        let remark = "Configuration property enable.gapless.guarantee is experimental";
        let deprecated = "Configuration property foo is deprecated";
        let warning = RDKafkaLogLevel::Warning;
        assert_eq!(severity(warning, "CONFWARN", remark), tracing::Level::DEBUG);
        assert_eq!(severity(warning, "CONFWARN", deprecated), tracing::Level::WARN);
        assert_eq!(severity(warning, "FAIL", "experimental feature of the broker"), tracing::Level::WARN);
        assert_eq!(severity(RDKafkaLogLevel::Alert, "CONFWARN", remark), tracing::Level::ERROR);
    }
}
