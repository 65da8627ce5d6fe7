//! Detects a group member whose client has stalled.
//!
//! librdkafka forgets every node that a metadata answer does not list, and a cluster that is just starting may list
//! none. It then bootstraps again from the configured addresses. Because of a race between two of its threads it
//! sometimes never does: <https://github.com/confluentinc/librdkafka/issues/5301>. It reports no error, and no more
//! records arrive. So an idle member requests metadata. If the cluster answers another client and not the member, the
//! member is replaced.

use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;

use crate::client::ErrorContext;
use crate::config::Options;
use crate::subscriber::member::Member;

/// Idle time after which the member's connection is probed.
const IDLE_BEFORE_PROBE: Duration = Duration::from_secs(10);
/// Pause between probes while the member gets no answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a probe. The member does not poll meanwhile.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Failed probes in a row before the member is replaced. A client that recovers does so within a second or two.
const MAX_FAILED_PROBES: u32 = 5;
/// Long enough to connect to any cluster. A reference client that has not connected by then is replaced.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Detects that a member's client no longer reaches a cluster that answers other clients.
pub(crate) struct StallDetector<'a> {
    options: &'a Options,
    next_probe: Instant,
    /// Probes in a row that the cluster answered for the reference client and not for the member.
    failed_probes: u32,
    reference: Option<ReferenceClient>,
}

/// A new client that knows only the addresses in the options.
struct ReferenceClient {
    client: BaseConsumer<ErrorContext>,
    created: Instant,
}

impl<'a> StallDetector<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        Self { options, next_probe: Instant::now() + IDLE_BEFORE_PROBE, failed_probes: 0, reference: None }
    }

    /// Records that the cluster sent something to the member.
    pub(crate) fn reset(&mut self) {
        (self.next_probe, self.failed_probes, self.reference) = (Instant::now() + IDLE_BEFORE_PROBE, 0, None);
    }

    /// Whether `member` must be replaced. Probes at most once per interval, and blocks while it does.
    pub(crate) fn is_stalled(&mut self, member: &Member) -> bool {
        if Instant::now() < self.next_probe {
            return false;
        }
        let topic = &member.context().topic;
        // A client that is connected to a node keeps waiting for its answer, however slow the node is.
        if !has_no_node(&member.fetch_metadata(Some(topic), PROBE_TIMEOUT)) {
            self.reset();
            return false;
        }
        self.failed_probes = if self.answers_reference(topic) { self.failed_probes + 1 } else { 0 };
        self.next_probe = Instant::now() + PROBE_INTERVAL;
        self.failed_probes >= MAX_FAILED_PROBES
    }

    /// Whether the cluster lists its nodes to the reference client.
    fn answers_reference(&mut self, topic: &str) -> bool {
        if self.reference.is_none() {
            let client = BaseConsumer::from_config_and_context(&self.options.reader(), ErrorContext::default());
            self.reference = client.ok().map(|client| ReferenceClient { client, created: Instant::now() });
        }
        let Some(reference) = &self.reference else { return false };
        let answer = reference.client.fetch_metadata(Some(topic), PROBE_TIMEOUT);
        let has_nodes = answer.as_ref().is_ok_and(|answer| !answer.brokers().is_empty());
        // An answer without nodes makes the reference client forget all nodes as well.
        if !has_nodes && (answer.is_ok() || reference.created.elapsed() > CONNECT_LIMIT) {
            self.reference = None;
        }
        has_nodes
    }
}

/// Whether the client that got this answer is connected to no node.
fn has_no_node(answer: &KafkaResult<Metadata>) -> bool {
    matches!(answer, Err(KafkaError::MetadataFetch(RDKafkaErrorCode::BrokerTransportFailure)))
}

#[cfg(test)]
mod tests {
    use landfall_broker_toolkit::Settle;
    use landfall_core::{Broker, Message, TopicAdministration};
    use landfall_testkit::servers::{KafkaOptions, KafkaServer};
    use landfall_testkit::traffic::{orders, stock};
    use landfall_testkit::{current_test, eventually};

    use super::*;
    use crate::Kafka;
    use crate::subscriber::member::Joining;
    use crate::subscriber::record::RecordBuffer;

    const SOON: Duration = Duration::from_secs(60);

    /// Makes a node send heartbeats less often than its controller requires, which lists no node in between.
    fn late_heartbeats(options: &mut KafkaOptions) {
        let settings = [("broker.session.timeout.ms", "1000"), ("broker.heartbeat.interval.ms", "2000")];
        options.settings = settings.map(|(name, value)| (name, value.into())).into();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stalled_member_is_replaced() {
        let Some(server) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
        // A static member rejoins at once, however long its predecessor's session timeout is.
        let joining = Joining::for_stock(&format!("{}?session_timeout=5m&instance=one", server.url().await));
        let kafka = Kafka::connect(joining.options.clone()).await.unwrap();
        let created = async || kafka.create_topic(&orders(), Some(1)).await.is_ok();
        eventually(SOON, "the topic is created", created).await;
        let published = async || kafka.publisher().publish(&[Message::new(orders(), "paid")]).await[0].is_accepted();
        eventually(SOON, "a message is published", published).await;
        // Without rebootstrapping, the client always reaches the state that the race causes sometimes.
        let mut config = joining.options.member(stock().as_str());
        let member = joining.join_with(config.set("metadata.recovery.strategy", "none")).unwrap();
        let receives = async || match member.poll(PROBE_TIMEOUT) {
            Some(Ok(record)) => {
                joining.deliveries.arrive(vec![RecordBuffer::default().copy(&record)]);
                true
            }
            _ => false,
        };
        eventually(SOON, "the member has a message in flight", receives).await;
        let item = joining.deliveries.try_next().expect("a message is in flight");

        server.restart_with(late_heartbeats).await.unwrap();
        let answer = || member.fetch_metadata(Some(&joining.name), PROBE_TIMEOUT);
        // The answer without nodes may have gone to the client's own metadata request instead.
        let lists_no_node = || answer().map_or(true, |answer| answer.brokers().is_empty());
        let forgets = async || (0..3).all(|_| lists_no_node()) && has_no_node(&answer());
        eventually(SOON, "the cluster lists no node", forgets).await;
        server.restart_with(|options| options.settings.clear()).await.unwrap();
        eventually(SOON, "the cluster is available", published).await;
        assert!(has_no_node(&answer()), "the member does not reach the cluster");
        // This client can never commit the offset of the acknowledged message.
        joining.deliveries.ack(item).unwrap();
        joining.receives(member).await;
    }
}
