//! Whether a member's client is still of use.
//!
//! librdkafka forgets every node that an answer of the cluster does not name, and a cluster that is just coming back may
//! name none. It then begins anew from the addresses it was given; or, if two of its threads meet at the wrong moment,
//! never: <https://github.com/confluentinc/librdkafka/issues/5301>. It says nothing about it, and nothing comes any more. So a
//! member to which nothing comes asks by itself, and is replaced when the cluster answers others and not it.

use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::client::Listening;
use crate::config::Options;
use crate::polling::Member;

/// So long nothing may come before it is asked why.
const SILENCE: Duration = Duration::from_secs(10);
/// How soon it is asked again while there is no answer.
const IN_DOUBT: Duration = Duration::from_secs(1);
/// How long an answer may take. Nothing is polled meanwhile.
const ANSWER: Duration = Duration::from_secs(1);
/// A client that finds its nodes again does so within a second or two. It is given more than that.
const CHANCES: u32 = 5;

/// From a member to its cluster.
pub(crate) struct Lifeline<'a> {
    options: &'a Options,
    next: Instant,
    /// How often in a row the cluster answered somebody else and not the member.
    cut: u32,
    /// Knows nothing but the addresses in the options.
    other: Option<BaseConsumer<Listening>>,
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
        if member.fetch_metadata(Some(topic), ANSWER).is_ok() {
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
            self.other = BaseConsumer::from_config_and_context(&self.options.reader(), Listening::default()).ok();
        }
        let answer = self.other.as_ref().and_then(|other| other.fetch_metadata(Some(topic), ANSWER).ok());
        let has_nodes = answer.is_some_and(|answer| !answer.brokers().is_empty());
        if !has_nodes {
            // This one may have forgotten everybody just now, too.
            self.other = None;
        }
        has_nodes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_core::{Broker, Message, TopicAdministration};
    use landfall_testkit::servers::{KafkaOptions, KafkaServer};
    use landfall_testkit::traffic::{orders, stock};
    use landfall_testkit::{current_test, eventually};

    use super::*;
    use crate::Kafka;
    use crate::in_hand::{InHand, Next};
    use crate::polling::{self, Joining};

    const SOON: Duration = Duration::from_secs(60);

    /// A node that is heard of more rarely than its controller wants to hear of it, which names it to nobody in between.
    fn now_and_then() -> KafkaOptions {
        let settings = [("broker.session.timeout.ms", "1000"), ("broker.heartbeat.interval.ms", "2000")];
        KafkaOptions { settings: settings.map(|(name, value)| (name, value.into())).into(), ..KafkaOptions::default() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_member_whose_client_has_forgotten_the_cluster_begins_anew() {
        let Some(server) = KafkaServer::start(&current_test(), now_and_then()).await else { return };
        let options = Options::from_url(&format!("{}?session_timeout=6s", server.url().await)).unwrap();
        let kafka = Kafka::connect(options.clone()).await.unwrap();
        let made = async || kafka.create_topic(&orders(), Some(1)).await.is_ok();
        eventually(SOON, "the node is there for long enough to make a topic", made).await;
        let (name, in_hand) = (orders().to_string(), Arc::new(InHand::new(10)));
        let joining = Joining { options, topic: orders(), name, group: stock(), in_hand: in_hand.clone() };
        // What it comes to by itself now and then it always comes to if it may not begin anew.
        let mut config = joining.options.member(stock().as_str());
        let member = joining.join_with(config.set("metadata.recovery.strategy", "none")).unwrap();
        let answer = || member.fetch_metadata(Some(&joining.name), ANSWER);
        // Whoever asks first hears of it; it may have been the client itself.
        let knows_nobody = || answer().map_or(true, |answer| answer.brokers().is_empty());
        let forgets = async || (0..3).all(|_| knows_nobody()) && answer().is_err();
        eventually(SOON, "the cluster names no node", forgets).await;
        server.restart_with(|options| options.settings.clear()).await.unwrap();
        let published = async || {
            let outcomes = kafka.publisher().publish(&[Message::new(orders(), "paid")]).await;
            outcomes[0].is_accepted()
        };
        eventually(SOON, "the cluster is there", published).await;
        assert!(answer().is_err(), "the member cannot tell that it is");

        let polled = joining.clone();
        let polling = std::thread::spawn(move || polling::run(member, &polled));
        let comes = async || matches!(in_hand.next(), Next::Item(_));
        eventually(SOON, "the member gets what is there", comes).await;
        in_hand.close();
        polling.join().unwrap();
    }
}
