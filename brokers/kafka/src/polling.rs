//! The thread behind a member: it polls, so that the group hears of the member however long a handler takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{Error, TopicName};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::{Rumours, log};
use crate::error::error;
use crate::in_hand::{Arrived, InHand};
use crate::wire;

/// How long one poll waits, and so how long it takes to notice that the member is to leave.
const POLL: Duration = Duration::from_millis(50);
/// A member that is full for longer than this pauses its partitions and goes on polling. Before that it only waits:
/// pausing throws away what was fetched ahead.
const PATIENCE: Duration = Duration::from_secs(1);
/// Records that are taken before they are handed on.
const AT_A_TIME: usize = 200;
/// Trouble that lasts is said again after this long.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// Hears of assignments, on the thread that polls.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) in_hand: Arc<InHand>,
    /// As the cluster calls it.
    pub(crate) topic: String,
    pub(crate) rumours: Arc<Rumours>,
}

pub(crate) type Member = BaseConsumer<Membership>;

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.rumours.hear(&error, reason);
    }
}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, member: &Member, rebalance: &Rebalance<'_>) {
        let partitions = |list: &TopicPartitionList| -> Vec<i32> {
            list.elements_for_topic(&self.topic).iter().map(|element| element.partition()).collect()
        };
        match rebalance {
            Rebalance::Assign(list) => self.in_hand.assign(partitions(list).into_iter()),
            Rebalance::Revoke(list) => {
                // librdkafka saves what is stored before it lets go of them.
                store(member);
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

/// Polls until the member is to leave, or until something will not heal.
pub(crate) fn run(member: Member, topic: &TopicName, store_every: Duration) {
    let in_hand = member.context().in_hand.clone();
    let (mut stored, mut said) = (Instant::now(), None);
    let mut failure = None;
    while !in_hand.is_closing() && failure.is_none() {
        let mut room = in_hand.room();
        if room == 0 && !in_hand.wait_for_room(PATIENCE) {
            pause(&member, true);
            while in_hand.room() == 0 && !in_hand.is_closing() && failure.is_none() {
                failure = poll(&member, topic, 1, &mut said);
                store(&member);
            }
            pause(&member, false);
        }
        room = room.max(in_hand.room());
        if failure.is_none() && room > 0 {
            failure = poll(&member, topic, room.min(AT_A_TIME), &mut said);
        }
        if stored.elapsed() >= store_every {
            store(&member);
            stored = Instant::now();
        }
    }
    store(&member);
    // Saves what is stored, and leaves the group.
    drop(member);
    in_hand.left(failure);
}

fn pause(member: &Member, pause: bool) {
    let done = member.assignment().and_then(|all| if pause { member.pause(&all) } else { member.resume(&all) });
    if let Err(error) = done {
        tracing::warn!(%error, pause, "partitions cannot be paused or resumed");
    }
}

/// Takes what is there, at most `limit`, and waits for the first; an error if there will never be another.
fn poll(member: &Member, topic: &TopicName, limit: usize, said: &mut Option<Instant>) -> Option<Error> {
    let (mut arrived, mut failure, mut wait) = (Vec::new(), None, POLL);
    while arrived.len() < limit {
        match member.poll(wait) {
            Some(Ok(record)) => {
                let message = wire::message(topic, &record).map_err(|error| error.to_string());
                arrived.push(Arrived { partition: record.partition(), offset: record.offset(), message });
                wait = Duration::ZERO;
            }
            Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                let cause = KafkaError::MessageConsumptionFatal(code);
                failure = Some(error(format!("this member of the group on topic {topic} cannot go on"), cause));
                break;
            }
            // The cluster comes back, the topic comes to be, the right is given: it goes on by itself.
            Some(Err(error)) => {
                if said.is_none_or(|said| said.elapsed() > SAY_AGAIN) {
                    tracing::warn!(%error, %topic, "nothing comes from Kafka for now");
                    *said = Some(Instant::now());
                }
                break;
            }
            // Nothing more now, or partitions changed hands; what came before that from one that went is left out below.
            None => break,
        }
    }
    if !arrived.is_empty() {
        *said = None;
        member.context().in_hand.arrive(arrived);
    }
    failure
}
