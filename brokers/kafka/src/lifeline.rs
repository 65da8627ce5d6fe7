//! Whether a member's client is still of use.
//!
//! librdkafka forgets every node that an answer of the cluster does not name, and a cluster that is just coming back may
//! name none. It then begins anew from the addresses it was given; or, if two of its threads meet at the wrong moment,
//! never: <https://github.com/confluentinc/librdkafka/issues/5301>. It says nothing about it, and nothing comes any more. So a
//! member to which nothing comes asks by itself, and is replaced when the cluster answers others and not it.

use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;

use crate::client::Listening;
use crate::config::Options;
use crate::member::Member;

/// So long nothing may come before it is asked why.
const SILENCE: Duration = Duration::from_secs(10);
/// How soon it is asked again while there is no answer.
const IN_DOUBT: Duration = Duration::from_secs(1);
/// How long an answer may take. Nothing is polled meanwhile.
const ANSWER: Duration = Duration::from_secs(1);
/// A client that finds its nodes again does so within a second or two. It is given more than that.
const CHANCES: u32 = 5;
/// Time enough to connect to any cluster; a client that did not is given up for another.
const CONNECTED: Duration = Duration::from_secs(30);

/// From a member to its cluster.
pub(crate) struct Lifeline<'a> {
    options: &'a Options,
    next: Instant,
    /// How often in a row the cluster answered somebody else and not the member.
    cut: u32,
    other: Option<Other>,
}

/// A client that knows nothing but the addresses in the options.
struct Other {
    client: BaseConsumer<Listening>,
    made: Instant,
}

impl<'a> Lifeline<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        Self { options, next: Instant::now() + SILENCE, cut: 0, other: None }
    }

    /// Something came from the cluster.
    pub(crate) fn holds(&mut self) {
        (self.next, self.cut, self.other) = (Instant::now() + SILENCE, 0, None);
    }

    /// Whether `member` has to be replaced. Asks only once in a while.
    pub(crate) fn is_cut(&mut self, member: &Member) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let topic = &member.context().topic;
        // Whoever knows a node that is there waits for its answer, however long that takes.
        if !knows_nobody(&member.fetch_metadata(Some(topic), ANSWER)) {
            self.holds();
            return false;
        }
        self.cut = if self.answers_others(topic) { self.cut + 1 } else { 0 };
        self.next = Instant::now() + IN_DOUBT;
        self.cut >= CHANCES
    }

    /// Whether the cluster answers a client that was made for it, and is ready to be asked more.
    fn answers_others(&mut self, topic: &str) -> bool {
        if self.other.is_none() {
            let client = BaseConsumer::from_config_and_context(&self.options.reader(), Listening::default());
            self.other = client.ok().map(|client| Other { client, made: Instant::now() });
        }
        let Some(other) = &self.other else { return false };
        let answer = other.client.fetch_metadata(Some(topic), ANSWER);
        let has_nodes = answer.as_ref().is_ok_and(|answer| !answer.brokers().is_empty());
        // It may have forgotten everybody just now, too.
        if !has_nodes && (answer.is_ok() || other.made.elapsed() > CONNECTED) {
            self.other = None;
        }
        has_nodes
    }
}

/// Whether a client is connected to no node at all.
fn knows_nobody(answer: &KafkaResult<Metadata>) -> bool {
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
    use crate::member::Joining;
    use crate::record::Copies;

    const SOON: Duration = Duration::from_secs(60);

    /// A node that is heard of more rarely than its controller wants to hear of it, which names it to nobody in between.
    fn now_and_then(options: &mut KafkaOptions) {
        let settings = [("broker.session.timeout.ms", "1000"), ("broker.heartbeat.interval.ms", "2000")];
        options.settings = settings.map(|(name, value)| (name, value.into())).into();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_member_whose_client_has_forgotten_the_cluster_begins_anew() {
        let Some(server) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
        // Whoever comes under the same name is let in at once, however long the one before is waited for.
        let joining = Joining::for_stock(&format!("{}?session_timeout=5m&instance=one", server.url().await));
        let kafka = Kafka::connect(joining.options.clone()).await.unwrap();
        let made = async || kafka.create_topic(&orders(), Some(1)).await.is_ok();
        eventually(SOON, "there is a topic", made).await;
        let published = async || kafka.publisher().publish(&[Message::new(orders(), "paid")]).await[0].is_accepted();
        eventually(SOON, "there is a message", published).await;
        // What it comes to by itself now and then it always comes to if it may not begin anew.
        let mut config = joining.options.member(stock().as_str());
        let member = joining.join_with(config.set("metadata.recovery.strategy", "none")).unwrap();
        let takes = async || match member.poll(ANSWER) {
            Some(Ok(record)) => {
                joining.deliveries.arrive(vec![Copies::default().copy(&record)]);
                true
            }
            _ => false,
        };
        eventually(SOON, "the member has something in hand", takes).await;
        let item = joining.deliveries.try_next().expect("it has");

        server.restart_with(now_and_then).await.unwrap();
        let answer = || member.fetch_metadata(Some(&joining.name), ANSWER);
        // Whoever asks first hears of it; it may have been the client itself.
        let names_nobody = || answer().map_or(true, |answer| answer.brokers().is_empty());
        let forgets = async || (0..3).all(|_| names_nobody()) && knows_nobody(&answer());
        eventually(SOON, "the cluster names no node", forgets).await;
        server.restart_with(|options| options.settings.clear()).await.unwrap();
        eventually(SOON, "the cluster is there", published).await;
        assert!(knows_nobody(&answer()), "the member cannot tell that it is");
        // It will never be able to say so.
        joining.deliveries.ack(item).unwrap();
        joining.receives(member).await;
    }
}
