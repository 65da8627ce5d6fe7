//! The background task of a subscriber.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall_core::{Error, GroupName, MessageId, Result, TopicName};
use redis::{ServerError, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::blocking_read::{self, NewEntries};
use super::read::Lane;
use super::settle;
use crate::broker::Redis;
use crate::config::Options;
use crate::entry::{Entry, EntryId};
use crate::error::{self, CallError, Cause};
use crate::link::Link;
use crate::names::Names;
use crate::subscriber::{Deliveries, Finished};
use crate::topics::{LookupError, Topics};

/// The longest time between two renewals of the leases.
const MAX_BEAT: Duration = Duration::from_secs(1);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

pub(super) struct LeasedShard {
    pub(super) phase: Phase,
    /// Of its deliveries: grows each time a stream is leased.
    pub(super) generation: u64,
    /// Redis has given the group every entry up to this one.
    pub(super) delivered: EntryId,
    pub(super) trimmed: Instant,
}

pub(super) enum Phase {
    /// Claims what the group was given and has not finished, from this id on.
    Claiming(EntryId),
    Reading,
    /// Moves to another member, at this time at the latest.
    Draining(Instant),
}

pub(crate) struct Member {
    pub(super) options: Arc<Options>,
    pub(super) names: Names,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) topics: Arc<Topics>,
    pub(super) link: Arc<Link>,
    /// For [`blocking_read`].
    pub(super) blocking_link: Arc<Link>,
    pub(super) deliveries: Arc<Deliveries>,
    /// Identifies this member as the holder of a lease.
    pub(super) token: String,
    /// The number of shards of the topic; 0 until the topic was found.
    pub(super) shards: u32,
    pub(super) held: BTreeMap<u32, LeasedShard>,
    pub(super) lanes: [Lane; 2],
    /// Rotates the first stream of a read, so that none starves.
    pub(super) rotation: usize,
    beat_at: Instant,
    blocked: Option<BoxFuture<'static, std::result::Result<NewEntries, CallError>>>,
}

/// Why a member could not do its work.
pub(super) enum MemberError {
    CallError(CallError),
    Answered(ServerError),
    LookupError(LookupError),
}

impl Member {
    pub(crate) fn new(redis: &Redis, topic: &TopicName, group: &GroupName, deliveries: Arc<Deliveries>) -> Self {
        let link = || Arc::new(Link::new(Arc::clone(&redis.options)));
        let (first, second) = (link(), link());
        Self {
            options: Arc::clone(&redis.options),
            names: redis.names.clone(),
            topic: topic.clone(),
            group: group.clone(),
            topics: Arc::clone(&redis.topics),
            link: Arc::clone(&first),
            blocking_link: link(),
            deliveries,
            token: MessageId::new().to_string(),
            shards: 0,
            held: BTreeMap::new(),
            lanes: [Lane::new(first), Lane::new(second)],
            rotation: 0,
            beat_at: Instant::now(),
            blocked: None,
        }
    }

    /// Creates the topic, if allowed, and the group: from here on no published entry is trimmed unread. If the topic
    /// may not be created here, the member waits for it.
    pub(crate) async fn prepare(&mut self) -> Result<()> {
        match self.look_up().await {
            Ok(()) | Err(MemberError::LookupError(LookupError::NotFound)) => Ok(()),
            Err(error) => Err(error.error(&self.topic)),
        }
    }

    pub(super) async fn look_up(&mut self) -> std::result::Result<(), MemberError> {
        let shards = self.topics.look_up(&self.link, &self.topic).await.map_err(MemberError::LookupError)?;
        self.shards = shards.len() as u32;
        self.make_groups().await.map(drop)
    }

    /// Creates the group, at the beginning, on every stream that lacks it; returns how many did.
    pub(super) async fn make_groups(&mut self) -> std::result::Result<usize, MemberError> {
        let mut pipeline = redis::pipe();
        for shard in 0..self.shards {
            let stream = self.names.stream(&self.topic, shard);
            pipeline.cmd("XGROUP").arg("CREATE").arg(stream).arg(self.group.as_str()).arg("0").arg("MKSTREAM");
        }
        let mut made = 0;
        for answer in self.link.ask(&pipeline).await.map_err(MemberError::CallError)? {
            match answer {
                Value::ServerError(error) if error.code() == "BUSYGROUP" => {}
                Value::ServerError(error) => return Err(MemberError::Answered(error)),
                _ => made += 1,
            }
        }
        Ok(made)
    }

    /// Runs until `stop`, then acknowledges what was finished and leaves the group.
    pub(crate) async fn run(mut self, finished: Finished, stop: CancellationToken) -> Result<()> {
        let settling = settle::Settling {
            options: Arc::clone(&self.options),
            names: self.names.clone(),
            topic: self.topic.clone(),
            group: self.group.clone(),
            link: Arc::clone(&self.link),
        };
        let settling = tokio::spawn(settling.run(finished, stop.clone()));
        let mut backoff = FIRST_BACKOFF;
        loop {
            let step = tokio::select! {
                step = self.step() => step,
                () = stop.cancelled() => break,
            };
            let Err(error) = step else {
                backoff = FIRST_BACKOFF;
                continue;
            };
            self.report(error);
            self.drop_watches();
            self.blocked = None;
            tokio::select! {
                () = tokio::time::sleep(backoff) => {}
                () = stop.cancelled() => break,
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
        let settled = settling.await.map_err(|error| {
            Error::new(landfall_core::ErrorKind::Internal, "the task that acknowledges panicked").with_source(error)
        });
        let left = self.leave().await;
        settled??;
        left
    }

    /// Renews the leases if they are due, reads as much as there is room for, and waits for the first event.
    async fn step(&mut self) -> std::result::Result<(), MemberError> {
        if Instant::now() >= self.beat_at {
            self.beat().await?;
            self.beat_at = Instant::now() + (self.options.lease / 3).min(MAX_BEAT);
        }
        if self.claim().await? {
            return Ok(());
        }
        self.read();
        let beat = tokio::time::sleep_until(self.beat_at);
        let deliveries = Arc::clone(&self.deliveries);
        if self.has_read_in_flight() {
            let waits_for_room = self.waits_for_room();
            tokio::select! {
                finished = self.finish_read() => finished?,
                () = deliveries.room_changed(), if waits_for_room => {}
                () = beat => {}
            }
        } else if self.waits_for_room() {
            tokio::select! {
                () = deliveries.room_changed() => {}
                () = beat => {}
            }
        } else {
            tokio::select! {
                () = self.wait_for_more() => {}
                () = beat => self.may_have_more(|_| true),
            }
        }
        Ok(())
    }

    /// Waits until Redis reports new entries.
    async fn wait_for_more(&mut self) {
        if self.blocked.is_none() {
            self.blocked = blocking_read::start(self);
        }
        // Kept if another event comes first: Redis does nothing else on this connection until the read returns.
        let found = match &mut self.blocked {
            Some(blocked) => blocked.await,
            None => pending().await,
        };
        self.blocked = None;
        self.unblocked(found).await;
    }

    /// Marks the streams with new entries as worth reading. The next blocking read begins behind these entries: the
    /// group has them by then, or the next read of the group returns them.
    async fn unblocked(&mut self, found: std::result::Result<NewEntries, CallError>) {
        match found {
            Ok(found) => {
                for (shard, id) in &found {
                    if let Some(shard) = self.held.get_mut(shard) {
                        shard.delivered = shard.delivered.max(*id);
                    }
                }
                self.may_have_more(|shard| found.iter().any(|(found, _)| *found == shard));
            }
            Err(failed) => {
                self.report(MemberError::CallError(failed));
                tokio::time::sleep(FIRST_BACKOFF).await;
                self.may_have_more(|_| true);
            }
        }
    }

    pub(super) fn deliver(&self, shard: u32, entries: Vec<Entry>) {
        self.deliveries.arrive(entries.into_iter().map(|entry| (shard, entry.id, entry)));
    }

    /// Forgets a stream whose lease is lost or released.
    pub(super) fn revoke(&mut self, shard: u32) {
        self.held.remove(&shard);
        self.deliveries.revoke(shard);
    }

    pub(super) fn drop_watches(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.watch = None);
    }

    /// Logs an error; one that retrying cannot mend is also reported to the subscriber.
    fn report(&self, error: MemberError) {
        let is_permanent = matches!(&error, MemberError::Answered(error)
            if matches!(error::cause(error), Cause::OtherNode | Cause::WrongType));
        let error = error.error(&self.topic);
        tracing::warn!(topic = %self.topic, group = %self.group, %error, "Redis unavailable, backing off");
        if is_permanent {
            self.deliveries.fail(error);
        }
    }
}

impl MemberError {
    pub(super) fn error(self, topic: &TopicName) -> Error {
        match self {
            Self::CallError(failed) => error::call_error(failed),
            Self::Answered(answer) => error::server_error(&answer),
            Self::LookupError(missing) => missing.into_error(topic),
        }
    }
}
