//! The owner of a shard of a group: a series of durable consumers, each created at the position of the one before.
//!
//! The last consumer of the series counts. Its name contains its epoch, so that of two members that create the next
//! one only one succeeds, and its metadata names the owner. The position of a shard is where its last consumer began,
//! or the last sequence acknowledged on it: both survive a restart of the server.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, pull};
use futures_util::future::join_all;
use landfall_core::{ErrorKind, GroupName, Result};

use crate::api::PullConsumer;
use crate::connection::Connection;
use crate::names;
use crate::subscriber::peers::MemberName;
use crate::topic::Topic;

const OWNER: &str = "landfall-owner";

/// The most unacknowledged messages of a shard that the server tracks, including those finished out of order here.
const MAX_PENDING: i64 = 100_000;

/// One shard as the server knows it.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) epoch: u64,
    pub(crate) owner: Option<MemberName>,
    /// Everything up to this sequence is finished.
    pub(crate) floor: u64,
    /// How many messages the consumer has sent, by its own count.
    pub(crate) sent: u64,
    /// Earlier consumers of the series that still exist.
    pub(crate) left_behind: Vec<String>,
    /// The consumer exists and does not answer, so nothing else is known of it: it has lost its leader, for a moment or
    /// for ever.
    pub(crate) is_silent: bool,
}

/// The shards of a group on a topic that have, or ever had, an owner.
pub(crate) async fn claims(connection: &Connection, topic: &Topic, group: &GroupName) -> Result<BTreeMap<u32, Claim>> {
    let mut lines: BTreeMap<u32, BTreeMap<u64, String>> = BTreeMap::new();
    for name in connection.consumer_names(&topic.stream).await? {
        if let Some((shard, epoch)) = names::shard_and_epoch(group, &name) {
            lines.entry(shard).or_default().insert(epoch, name);
        }
    }
    let claims = join_all(lines.into_iter().filter_map(|(shard, mut line)| {
        let (epoch, name) = line.pop_last()?;
        let left_behind: Vec<String> = line.into_values().collect();
        Some(async move {
            match connection.consumer(&topic.stream, &name).await {
                Ok(info) => (shard, Claim::of(epoch, &info, left_behind)),
                // Or it was deleted meanwhile, and the next round finds its successor. The shard had an owner either
                // way.
                Err(error) => {
                    tracing::debug!(consumer = name, %error, "consumer does not answer");
                    let silent = Claim { epoch, owner: None, floor: 0, sent: 0, left_behind, is_silent: true };
                    (shard, silent)
                }
            }
        })
    }));
    Ok(claims.await.into_iter().collect())
}

impl Claim {
    fn of(epoch: u64, info: &consumer::Info, left_behind: Vec<String>) -> Self {
        let began = match info.config.deliver_policy {
            DeliverPolicy::ByStartSequence { start_sequence } => start_sequence.saturating_sub(1),
            _ => 0,
        };
        Self {
            epoch,
            owner: info.config.metadata.get(OWNER).filter(|owner| !owner.is_empty()).cloned(),
            floor: info.ack_floor.stream_sequence.max(began),
            sent: info.delivered.consumer_sequence,
            left_behind,
            is_silent: false,
        }
    }
}

/// Creates the consumers of a group.
#[derive(Debug)]
pub(crate) struct Claiming<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) topic: &'a Topic,
    pub(crate) group: &'a GroupName,
    pub(crate) ack_wait: Duration,
}

impl Claiming<'_> {
    /// Creates the next consumer of the series, for `owner` or without one, and deletes those before it. `None` if
    /// another member was faster.
    pub(crate) async fn next(
        &self,
        shard: u32,
        before: Option<(u64, Vec<String>)>,
        floor: u64,
        owner: Option<&str>,
    ) -> Result<Option<(u64, PullConsumer)>> {
        let (last, mut left_behind) = before.unwrap_or_default();
        let epoch = last + 1;
        if last > 0 {
            left_behind.push(names::consumer(self.group, shard, last)?);
        }
        let config = pull::Config {
            durable_name: Some(names::consumer(self.group, shard, epoch)?),
            filter_subject: self.topic.subject(shard).into_string(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: floor + 1 },
            // One acknowledgement finishes everything before it.
            ack_policy: AckPolicy::All,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            max_ack_pending: MAX_PENDING,
            metadata: [(OWNER.to_owned(), owner.unwrap_or_default().to_owned())].into(),
            ..pull::Config::default()
        };
        let made = match self.connection.create_consumer(&self.topic.stream, config).await {
            Ok(made) => made,
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(None),
            Err(error) => return Err(error),
        };
        for name in left_behind {
            // The next owner of the shard deletes what is left.
            if let Err(error) = self.connection.delete_consumer(&self.topic.stream, &name).await {
                tracing::warn!(consumer = %name, %error, "deleting the consumer of an earlier owner failed");
            }
        }
        Ok(Some((epoch, made)))
    }
}

/// Whether a consumer belongs to such a series.
pub(crate) fn is_a_claim(info: &consumer::Info) -> bool {
    info.config.metadata.contains_key(OWNER)
}
