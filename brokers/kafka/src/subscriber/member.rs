//! The background thread of a subscriber: it polls, so that the member stays in its group however long a handler takes.

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
use crate::subscriber::in_flight::Deliveries;
use crate::subscriber::lagging::LaggingPartitions;
use crate::subscriber::record::RecordBuffer;
use crate::subscriber::stall::StallDetector;

/// How long one poll waits, and so how long it may take until the member notices that it is to leave.
const POLL: Duration = Duration::from_millis(50);
/// A member without room for longer than this pauses its partitions and continues to poll. Until then it only waits:
/// pausing discards what was prefetched.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The most records polled before they are delivered.
const MAX_RECORDS: usize = 200;
/// The client knows the new coordinator this long after the old one refused.
const COORDINATOR_CHANGE: Duration = Duration::from_secs(2);
/// A lasting error is logged again after this long.
const LOG_AGAIN: Duration = Duration::from_secs(30);

/// Receives assignments, on the thread that polls.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) deliveries: Arc<Deliveries>,
    /// As the cluster calls it.
    pub(crate) topic: String,
    pub(crate) client_errors: Arc<ClientErrors>,
    /// Another client has replaced it: the deliveries belong to that one.
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
            Rebalance::Assign(list) => self.deliveries.assign(partitions(list)),
            Rebalance::Revoke(list) => {
                // librdkafka commits what is stored before it gives the partitions up.
                store(member);
                // A partition that is paused when it is revoked would still be paused when it is assigned again.
                if let Err(error) = member.resume(list) {
                    tracing::warn!(%error, "resuming revoked partitions failed");
                }
                self.deliveries.revoke(partitions(list));
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance failed"),
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        match result {
            // There was nothing to commit.
            Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
            // The next member begins at an earlier commit, and delivers some messages again.
            Err(error) => tracing::warn!(%error, "offset commit failed"),
        }
    }
}

/// Stores the finished prefixes in librdkafka, which commits them regularly and before a partition is revoked.
fn store(member: &Member) {
    let Membership { deliveries, topic, .. } = &**member.context();
    let mut list = TopicPartitionList::new();
    for (partition, offset) in deliveries.progress() {
        if let Err(error) = list.add_partition_offset(topic, partition, Offset::Offset(offset)) {
            tracing::warn!(%error, partition, offset, "offset not stored");
        }
    }
    if list.count() > 0
        && let Err(error) = member.store_offsets(&list)
    {
        tracing::debug!(%error, "offsets of revoked partitions not stored");
    }
}

/// What is needed to join a group, once and again.
#[derive(Debug, Clone)]
pub(crate) struct Joining {
    pub(crate) options: Options,
    pub(crate) topic: TopicName,
    /// As the cluster calls it.
    pub(crate) name: String,
    pub(crate) group: GroupName,
    pub(crate) deliveries: Arc<Deliveries>,
}

impl Joining {
    pub(crate) fn join(&self) -> Result<Member> {
        self.join_with(&self.options.member(&format!("{}{}", self.options.prefix, self.group)))
    }

    pub(crate) fn join_with(&self, config: &ClientConfig) -> Result<Member> {
        let Self { topic, name, group, deliveries, .. } = self;
        let failed = |cause| error(format!("group {group} on topic {topic} cannot be joined"), cause);
        let membership = Membership {
            deliveries: deliveries.clone(),
            topic: name.clone(),
            client_errors: Arc::new(ClientErrors::default()),
            is_replaced: AtomicBool::new(false),
        };
        let member = Member::from_config_and_context(config, membership).map_err(failed)?;
        member.subscribe(&[name]).map_err(failed)?;
        Ok(member)
    }

    /// Replaces a member whose client has lost the cluster or a partition; returns the same one if that fails.
    fn replace(&self, lost: Member) -> Member {
        let (topic, group) = (&self.topic, &self.group);
        match self.join() {
            Ok(member) => {
                tracing::warn!(%topic, %group, "client has lost the cluster or a partition, rejoining the group");
                // Other members have its partitions by now, or they are delivered again here.
                lost.context().is_replaced.store(true, Ordering::Relaxed);
                self.deliveries.revoke_all();
                // Dropping it may wait for ever to commit to a cluster that it cannot find.
                std::thread::spawn(move || drop(lost));
                member
            }
            Err(error) => {
                tracing::warn!(%error, "client has lost the cluster or a partition, rejoining the group failed");
                lost
            }
        }
    }
}

/// Polls until the member is to leave, or until a permanent error.
pub(crate) fn run(mut member: Member, joining: &Joining) {
    let Joining { options, topic, deliveries, .. } = joining;
    let store_every = options.commit_interval / 2;
    let (mut stored, mut stall) = (Instant::now(), StallDetector::new(options));
    let mut lagging = LaggingPartitions::new(options);
    let mut polling = Polling {
        topic,
        logged: None,
        misled: None,
        is_idle: false,
        has_arrived: false,
        copies: RecordBuffer::default(),
    };
    let mut failure = None;
    while !deliveries.is_closing() && failure.is_none() {
        let mut room = deliveries.room();
        if room == 0 && !deliveries.wait_for_room(MAX_WAIT) {
            pause_all(&member);
            while deliveries.room() == 0 && !deliveries.is_closing() && failure.is_none() {
                failure = polling.poll(&member, 1);
                if deliveries.has_too_many() {
                    // A partition was assigned since, and is not paused yet.
                    pause_all(&member);
                }
                store(&member);
            }
            resume_all(&member);
        }
        room = room.max(deliveries.room());
        if failure.is_none() && room > 0 {
            failure = polling.poll(&member, room.min(MAX_RECORDS));
        }
        pause_backlogs(&member);
        // Not during a rebalance: librdkafka would take this for the answer to its assignment.
        if polling.is_idle && polling.misled.take_if(|since| since.elapsed() > COORDINATOR_CHANGE).is_some() {
            fetch_positions_again(&member);
        }
        if std::mem::take(&mut polling.has_arrived) {
            stall.reset();
        }
        if stall.is_stalled(&member) || (polling.is_idle && lagging.has_stalled(&member)) {
            member = joining.replace(member);
            stall.reset();
        }
        if stored.elapsed() >= store_every {
            store(&member);
            stored = Instant::now();
        }
    }
    store(&member);
    // Reported before the member commits and leaves the group, which may take long.
    deliveries.left(failure);
    drop(member);
}

fn pause_all(member: &Member) {
    let paused = member.assignment().and_then(|all| member.pause(&all));
    if let Err(error) = paused {
        tracing::warn!(%error, "pausing partitions failed");
    }
}

/// Resumes all partitions except those with a long backlog.
fn resume_all(member: &Member) {
    let deliveries = &member.context().deliveries;
    let resumed = member.assignment().and_then(|all| {
        let partitions: Vec<i32> = all.elements().iter().map(|element| element.partition()).collect();
        let running = partitions.into_iter().filter(|partition| deliveries.is_running(*partition));
        member.resume(&named(member, running))
    });
    if let Err(error) = resumed {
        tracing::warn!(%error, "resuming partitions failed");
    }
}

/// Pauses partitions with a long backlog behind an unfinished message, and resumes them when it has shrunk.
fn pause_backlogs(member: &Member) {
    let (pause, resume) = member.context().deliveries.pauses();
    for partition in &pause {
        tracing::warn!(partition, "an unfinished message blocks its partition");
    }
    let done = match (pause.is_empty(), resume.is_empty()) {
        (true, true) => return,
        _ => member
            .pause(&named(member, pause.into_iter()))
            .and_then(|()| member.resume(&named(member, resume.into_iter()))),
    };
    if let Err(error) = done {
        tracing::warn!(%error, "pausing partitions with a backlog failed");
    }
}

/// Makes the client fetch the committed offsets of partitions from which nothing has arrived. It fetches them once,
/// and if the coordinator has changed it never asks the new one:
/// <https://github.com/confluentinc/librdkafka/issues/5586>.
fn fetch_positions_again(member: &Member) {
    let untouched = named(member, member.context().deliveries.untouched().into_iter());
    if untouched.count() == 0 {
        return;
    }
    let assigned = member.incremental_unassign(&untouched).and_then(|()| member.incremental_assign(&untouched));
    match assigned {
        Ok(()) => tracing::info!(partitions = untouched.count(), "fetching committed offsets again"),
        Err(error) => tracing::warn!(%error, "fetching committed offsets again failed"),
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

/// The state of the polling loop.
struct Polling<'a> {
    topic: &'a TopicName,
    /// When a lasting error was last logged.
    logged: Option<Instant>,
    /// When a coordinator refused because it is not, or no longer, the coordinator.
    misled: Option<Instant>,
    /// The last poll found no more events.
    is_idle: bool,
    /// A record has arrived since this was last checked.
    has_arrived: bool,
    copies: RecordBuffer,
}

impl Polling<'_> {
    /// Delivers at most `limit` records, and waits for the first. Returns an error if no more will ever arrive.
    fn poll(&mut self, member: &Member, limit: usize) -> Option<Error> {
        let (mut arrived, mut failure, mut wait) = (Vec::new(), None, POLL);
        self.is_idle = false;
        while arrived.len() < limit {
            match member.poll(wait) {
                Some(Ok(record)) => {
                    arrived.push(self.copies.copy(&record));
                    wait = Duration::ZERO;
                }
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    let cause = KafkaError::MessageConsumptionFatal(code);
                    let sentence = format!("this member of the group on topic {} cannot continue", self.topic);
                    failure = Some(error(sentence, cause));
                    break;
                }
                // Temporary: the cluster is down, the topic does not exist yet, or an ACL is missing.
                Some(Err(error)) => {
                    if self.logged.is_none_or(|logged| logged.elapsed() > LOG_AGAIN) {
                        tracing::warn!(%error, topic = %self.topic, "Kafka unavailable, still polling");
                        self.logged = Some(Instant::now());
                    }
                    if is_misled(&error) {
                        self.misled.get_or_insert_with(Instant::now);
                    }
                    break;
                }
                // No more events, or a rebalance. Records of a partition that it revoked are ignored on arrival.
                None => {
                    self.is_idle = true;
                    break;
                }
            }
        }
        if !arrived.is_empty() {
            (self.logged, self.has_arrived) = (None, true);
            member.context().deliveries.arrive(arrived);
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

    const SOON: Duration = Duration::from_secs(60);

    impl Joining {
        /// The group [`stock`] on the topic [`orders`].
        pub(crate) fn for_stock(url: &str) -> Self {
            let (options, deliveries) = (Options::from_url(url).unwrap(), Arc::new(Deliveries::new(10)));
            Self { options, topic: orders(), name: orders().to_string(), group: stock(), deliveries }
        }

        /// Polls for `member` until a record arrives.
        pub(crate) async fn receives(&self, member: Member) {
            let polled = self.clone();
            let polling = std::thread::spawn(move || run(member, &polled));
            let received = async || self.deliveries.try_next().is_some();
            eventually(SOON, "the member receives the record", received).await;
            self.deliveries.close();
            polling.join().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_member_fetches_its_offsets_again_after_a_coordinator_change() {
        // A real coordinator refuses for a moment only.
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(orders().as_str(), 1, 1).unwrap();
        let joining = Joining::for_stock(&format!("kafka://{}?connect_timeout=1s", cluster.bootstrap_servers()));
        let kafka = Kafka::connect(joining.options.clone()).await.unwrap();
        let published = async || kafka.publisher().publish(&[Message::new(orders(), "paid")]).await[0].is_accepted();
        eventually(SOON, "there is a message", published).await;
        let moved = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR];
        cluster.request_errors(RDKafkaApiKey::OffsetFetch, &moved);
        joining.receives(joining.join().unwrap()).await;
    }
}
