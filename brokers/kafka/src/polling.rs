//! The thread behind a member: it polls, so that the group hears of the member however long a handler takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use landfall_core::{Error, GroupName, Result, TopicName};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::{ClientErrors, log};
use crate::config::Options;
use crate::error::error;
use crate::in_hand::InHand;
use crate::record::RecordBuffer;
use crate::stall::StallDetector;

/// How long one poll waits, and so how long it takes to notice that the member is to leave.
const POLL: Duration = Duration::from_millis(50);
/// A member that is full for longer than this pauses its partitions and goes on polling. Before that it only waits:
/// pausing throws away what was fetched ahead.
const PATIENCE: Duration = Duration::from_secs(1);
/// Records that are taken before they are handed on.
const AT_A_TIME: usize = 200;
/// So long after a coordinator said that it is none the next one is known.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Trouble that lasts is said again after this long.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Hears of assignments, on the thread that polls.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) in_hand: Arc<InHand>,
    /// As the cluster calls it.
    pub(crate) topic: String,
    pub(crate) client_errors: Arc<ClientErrors>,
    /// Whether another member has taken its place: what it has in hand is no longer its own.
    is_replaced: AtomicBool,
}

pub(crate) type Member = BaseConsumer<Membership>;

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.client_errors.record(&error, reason);
    }
}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, member: &Member, rebalance: &Rebalance<'_>) {
        if self.is_replaced.load(Ordering::Relaxed) {
            return;
        }
        let partitions = |list: &TopicPartitionList| -> Vec<i32> {
            list.elements_for_topic(&self.topic).iter().map(|element| element.partition()).collect()
        };
        match rebalance {
            Rebalance::Assign(list) => self.in_hand.assign(partitions(list).into_iter()),
            Rebalance::Revoke(list) => {
                // librdkafka saves what is stored before it lets go of them.
                store(member);
                // One that is paused when it goes would still be when it comes back.
                if let Err(error) = member.resume(list) {
                    tracing::warn!(%error, "partitions that go away cannot be resumed");
                }
                self.in_hand.revoke(partitions(list).into_iter());
            }
            Rebalance::Error(error) => tracing::warn!(%error, "the group could not share out its partitions"),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        match result {
            // There was nothing to save.
            Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
            // The next member, or the next commit, goes on from what was saved before: something comes again.
            Err(error) => tracing::warn!(%error, "the progress of a group was not saved"),
        }
    }
}

/// Hands the finished prefixes to librdkafka, which saves them every so often, and when a partition goes.
fn store(member: &Member) {
    let Membership { in_hand, topic, .. } = &**member.context();
    let mut list = TopicPartitionList::new();
    for (partition, offset) in in_hand.progress() {
        if let Err(error) = list.add_partition_offset(topic, partition, Offset::Offset(offset)) {
            tracing::warn!(%error, partition, offset, "an offset cannot be stored");
        }
    }
    if list.count() > 0
        && let Err(error) = member.store_offsets(&list)
    {
        tracing::debug!(%error, "the progress of partitions that went away was not stored");
    }
}

/// What a member of a group is made of, and can be made of once more.
#[derive(Debug, Clone)]
pub(crate) struct Joining {
    pub(crate) options: Options,
    pub(crate) topic: TopicName,
    /// As the cluster calls it.
    pub(crate) name: String,
    pub(crate) group: GroupName,
    pub(crate) in_hand: Arc<InHand>,
}

impl Joining {
    pub(crate) fn join(&self) -> Result<Member> {
        self.join_with(&self.options.member(&format!("{}{}", self.options.prefix, self.group)))
    }

    pub(crate) fn join_with(&self, config: &ClientConfig) -> Result<Member> {
        let Self { topic, name, group, in_hand, .. } = self;
        let failed = |cause| error(format!("group {group} on topic {topic} cannot be joined"), cause);
        let membership = Membership {
            in_hand: in_hand.clone(),
            topic: name.clone(),
            client_errors: Arc::new(ClientErrors::default()),
            is_replaced: AtomicBool::new(false),
        };
        let member = Member::from_config_and_context(config, membership).map_err(failed)?;
        member.subscribe(&[name]).map_err(failed)?;
        Ok(member)
    }

    /// A member in the place of one whose client is of no more use, if one can be made.
    fn replace(&self, lost: Member) -> Member {
        let (topic, group) = (&self.topic, &self.group);
        match self.join() {
            Ok(member) => {
                tracing::warn!(%topic, %group, "Kafka answers others and not this member, which begins anew");
                // What it had is somebody else's by now, or comes again.
                lost.context().is_replaced.store(true, Ordering::Relaxed);
                self.in_hand.revoke_all();
                // It may wait for ever for a cluster that it cannot find, to tell it how far it came.
                std::thread::spawn(move || drop(lost));
                member
            }
            Err(error) => {
                tracing::warn!(%error, "Kafka answers others and not this member, which cannot begin anew yet");
                lost
            }
        }
    }
}

/// Polls until the member is to leave, or until something will not heal.
pub(crate) fn run(mut member: Member, joining: &Joining) {
    let Joining { options, topic, in_hand, .. } = joining;
    let store_every = options.commit_interval / 2;
    let (mut stored, mut stall) = (Instant::now(), StallDetector::new(options));
    let mut polling =
        Polling { topic, said: None, misled: None, is_quiet: false, has_come: false, copies: RecordBuffer::default() };
    let mut failure = None;
    while !in_hand.is_closing() && failure.is_none() {
        let mut room = in_hand.room();
        if room == 0 && !in_hand.wait_for_room(PATIENCE) {
            pause_all(&member);
            while in_hand.room() == 0 && !in_hand.is_closing() && failure.is_none() {
                failure = polling.poll(&member, 1);
                if in_hand.has_too_many() {
                    // Of a partition that has come to us since, which is not paused yet.
                    pause_all(&member);
                }
                store(&member);
            }
            resume_all(&member);
        }
        room = room.max(in_hand.room());
        if failure.is_none() && room > 0 {
            failure = polling.poll(&member, room.min(AT_A_TIME));
        }
        hold_back(&member);
        // Not while partitions are on their way, which would be taken for an answer to that.
        if polling.is_quiet && polling.misled.take_if(|since| since.elapsed() > ASK_AGAIN).is_some() {
            ask_again(&member);
        }
        if std::mem::take(&mut polling.has_come) {
            stall.reset();
        }
        if stall.is_stalled(&member) {
            member = joining.replace(member);
            stall.reset();
        }
        if stored.elapsed() >= store_every {
            store(&member);
            stored = Instant::now();
        }
    }
    store(&member);
    // Whoever waits hears of it now: to save what is stored and to leave the group may take long.
    in_hand.left(failure);
    drop(member);
}

fn pause_all(member: &Member) {
    let paused = member.assignment().and_then(|all| member.pause(&all));
    if let Err(error) = paused {
        tracing::warn!(%error, "partitions cannot be paused");
    }
}

/// All but those that are held back for a reason of their own.
fn resume_all(member: &Member) {
    let in_hand = &member.context().in_hand;
    let resumed = member.assignment().and_then(|all| {
        let partitions: Vec<i32> = all.elements().iter().map(|element| element.partition()).collect();
        let goes_on = partitions.into_iter().filter(|partition| in_hand.goes_on(*partition));
        member.resume(&named(member, goes_on))
    });
    if let Err(error) = resumed {
        tracing::warn!(%error, "partitions cannot be resumed");
    }
}

/// Pauses partitions of which too much was delivered behind one message, and resumes them when that has changed.
fn hold_back(member: &Member) {
    let (pause, resume) = member.context().in_hand.hold_back();
    for partition in &pause {
        tracing::warn!(partition, "a message that was given back holds up its partition");
    }
    let done = match (pause.is_empty(), resume.is_empty()) {
        (true, true) => return,
        _ => member
            .pause(&named(member, pause.into_iter()))
            .and_then(|()| member.resume(&named(member, resume.into_iter()))),
    };
    if let Err(error) = done {
        tracing::warn!(%error, "partitions cannot be held back");
    }
}

/// Has the client ask once more where to begin in partitions from which nothing came. It asks once, and if it is told that
/// somebody else coordinates the group by now it never asks that one:
/// <https://github.com/confluentinc/librdkafka/issues/5586>.
fn ask_again(member: &Member) {
    let untouched = named(member, member.context().in_hand.untouched().into_iter());
    if untouched.count() == 0 {
        return;
    }
    let asked = member.incremental_unassign(&untouched).and_then(|()| member.incremental_assign(&untouched));
    match asked {
        Ok(()) => tracing::info!(partitions = untouched.count(), "asked once more where to begin"),
        Err(error) => tracing::warn!(%error, "where to begin cannot be asked for"),
    }
}

fn is_misled(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator};
    let code = error.rdkafka_error_code();
    matches!(code, Some(CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator))
}

fn named(member: &Member, partitions: impl Iterator<Item = i32>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(&member.context().topic, partition);
    }
    list
}

/// What one poll leaves to the next.
struct Polling<'a> {
    topic: &'a TopicName,
    /// When lasting trouble was last spoken of.
    said: Option<Instant>,
    /// When a coordinator said that it is none.
    misled: Option<Instant>,
    /// Whether there was nothing left to be told.
    is_quiet: bool,
    /// Whether a record came since somebody looked.
    has_come: bool,
    copies: RecordBuffer,
}

impl Polling<'_> {
    /// Takes what is there, at most `limit`, and waits for the first; an error if there will never be another.
    fn poll(&mut self, member: &Member, limit: usize) -> Option<Error> {
        let (mut arrived, mut failure, mut wait) = (Vec::new(), None, POLL);
        self.is_quiet = false;
        while arrived.len() < limit {
            match member.poll(wait) {
                Some(Ok(record)) => {
                    arrived.push(self.copies.copy(&record));
                    wait = Duration::ZERO;
                }
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    let cause = KafkaError::MessageConsumptionFatal(code);
                    let sentence = format!("this member of the group on topic {} cannot go on", self.topic);
                    failure = Some(error(sentence, cause));
                    break;
                }
                // The cluster comes back, the topic comes to be, the right is given: it goes on by itself.
                Some(Err(error)) => {
                    if self.said.is_none_or(|said| said.elapsed() > SAY_AGAIN) {
                        tracing::warn!(%error, topic = %self.topic, "nothing comes from Kafka for now");
                        self.said = Some(Instant::now());
                    }
                    if is_misled(&error) {
                        self.misled.get_or_insert_with(Instant::now);
                    }
                    break;
                }
                // Nothing more now, or partitions changed hands; what came before that from one that went is left out
                // by whoever takes it.
                None => {
                    self.is_quiet = true;
                    break;
                }
            }
        }
        if !arrived.is_empty() {
            (self.said, self.has_come) = (None, true);
            member.context().in_hand.arrive(arrived);
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{Broker, Message};
    use landfall_testkit::eventually;
    use landfall_testkit::traffic::{orders, stock};
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;
    use crate::Kafka;
    use crate::in_hand::Next;

    const SOON: Duration = Duration::from_secs(60);

    impl Joining {
        /// The group [`stock`] on the topic [`orders`].
        pub(crate) fn of_stock(url: &str) -> Self {
            let (options, in_hand) = (Options::from_url(url).unwrap(), Arc::new(InHand::new(10)));
            Self { options, topic: orders(), name: orders().to_string(), group: stock(), in_hand }
        }

        /// Polls for `member` until something comes.
        pub(crate) async fn comes(&self, member: Member) {
            let polled = self.clone();
            let polling = std::thread::spawn(move || run(member, &polled));
            let comes = async || matches!(self.in_hand.next(), Next::Item(_));
            eventually(SOON, "the member gets what is there", comes).await;
            self.in_hand.close();
            polling.join().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_member_that_asked_the_wrong_coordinator_where_to_begin_asks_again() {
        // The real one says it for a moment only.
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(orders().as_str(), 1, 1).unwrap();
        let joining = Joining::of_stock(&format!("kafka://{}?connect_timeout=1s", cluster.bootstrap_servers()));
        let kafka = Kafka::connect(joining.options.clone()).await.unwrap();
        let published = async || kafka.publisher().publish(&[Message::new(orders(), "paid")]).await[0].is_accepted();
        eventually(SOON, "there is a message", published).await;
        let moved = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR];
        cluster.request_errors(RDKafkaApiKey::OffsetFetch, &moved);
        joining.comes(joining.join().unwrap()).await;
    }
}
