//! The task behind a subscriber.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall_core::{Error, GroupName, MessageId, Result, TopicName};
use redis::{ServerError, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bell::{self, Rung};
use super::read::Lane;
use super::settle;
use super::shelf::{Finished, Shelf};
use crate::broker::Redis;
use crate::config::Options;
use crate::entry::EntryId;
use crate::error::{self, CallError, Cause};
use crate::link::Link;
use crate::names::Names;
use crate::topics::{LookupError, Topics};

/// The longest between two looks at the leases.
const LONGEST_BEAT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Shard {
    pub(super) phase: Phase,
    /// Grows each time a stream comes to this member.
    pub(super) since: u64,
    /// Everything up to here was given to the group.
    pub(super) delivered: EntryId,
    pub(super) trimmed: Instant,
}

/// How far a stream has come to this member.
pub(super) enum Phase {
    /// What the group was given before and has not finished comes first, from this id on.
    Claiming(EntryId),
    Reading,
    /// It goes to another member, at this time at the latest.
    Leaving(Instant),
}

pub(crate) struct Member {
    pub(super) options: Arc<Options>,
    pub(super) names: Names,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) topics: Arc<Topics>,
    pub(super) link: Arc<Link>,
    /// The connection on which Redis keeps its answers back.
    pub(super) bell: Arc<Link>,
    pub(super) shelf: Arc<Shelf>,
    /// Who this is, in the leases.
    pub(super) token: String,
    /// How many shards the topic has; none until it was seen.
    pub(super) shards: u32,
    pub(super) held: BTreeMap<u32, Shard>,
    pub(super) lanes: [Lane; 2],
    /// Where the next read begins, so that no shard starves.
    pub(super) turn: usize,
    beat_at: Instant,
    ringing: Option<BoxFuture<'static, std::result::Result<Rung, CallError>>>,
}

/// What kept a member from its work.
pub(super) enum Trouble {
    CallError(CallError),
    Answered(ServerError),
    LookupError(LookupError),
}

impl Member {
    pub(crate) fn new(redis: &Redis, topic: &TopicName, group: &GroupName, shelf: Arc<Shelf>) -> Self {
        let link = || Arc::new(Link::new(Arc::clone(&redis.options)));
        let (first, second) = (link(), link());
        Self {
            options: Arc::clone(&redis.options),
            names: redis.names.clone(),
            topic: topic.clone(),
            group: group.clone(),
            topics: Arc::clone(&redis.topics),
            link: Arc::clone(&first),
            bell: link(),
            shelf,
            token: MessageId::new().to_string(),
            shards: 0,
            held: BTreeMap::new(),
            lanes: [Lane::new(first), Lane::new(second)],
            turn: 0,
            beat_at: Instant::now(),
            ringing: None,
        }
    }

    /// Makes the topic, if it may, and the group: from here on nothing that is published is removed unread. A topic that
    /// somebody else has to make is waited for.
    pub(crate) async fn prepare(&mut self) -> Result<()> {
        match self.look_up().await {
            Ok(()) | Err(Trouble::LookupError(LookupError::NotFound)) => Ok(()),
            Err(trouble) => Err(trouble.error(&self.topic)),
        }
    }

    pub(super) async fn look_up(&mut self) -> std::result::Result<(), Trouble> {
        let shards = self.topics.look_up(&self.link, &self.topic).await.map_err(Trouble::LookupError)?;
        self.shards = shards.len() as u32;
        self.make_groups().await.map(drop)
    }

    /// Makes the group on every stream that lacks it, at the beginning; answers with how many did.
    pub(super) async fn make_groups(&mut self) -> std::result::Result<usize, Trouble> {
        let mut pipeline = redis::pipe();
        for shard in 0..self.shards {
            let stream = self.names.stream(&self.topic, shard);
            pipeline.cmd("XGROUP").arg("CREATE").arg(stream).arg(self.group.as_str()).arg("0").arg("MKSTREAM");
        }
        let mut made = 0;
        for answer in self.link.ask(&pipeline).await.map_err(Trouble::CallError)? {
            match answer {
                Value::ServerError(error) if error.code() == "BUSYGROUP" => {}
                Value::ServerError(error) => return Err(Trouble::Answered(error)),
                _ => made += 1,
            }
        }
        Ok(made)
    }

    /// Works until `stop`, then tells Redis what was finished and leaves.
    pub(crate) async fn run(mut self, finished: Finished, stop: CancellationToken) -> Result<()> {
        let settling = settle::Settling {
            options: Arc::clone(&self.options),
            names: self.names.clone(),
            topic: self.topic.clone(),
            group: self.group.clone(),
            link: Arc::clone(&self.link),
        };
        let settling = tokio::spawn(settling.run(finished, stop.clone()));
        let mut pause = FIRST_PAUSE;
        loop {
            let step = tokio::select! {
                step = self.step() => step,
                () = stop.cancelled() => break,
            };
            let Err(trouble) = step else {
                pause = FIRST_PAUSE;
                continue;
            };
            self.report(trouble);
            self.close_gates();
            self.ringing = None;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => break,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let settled = settling.await.map_err(|error| {
            Error::new(landfall_core::ErrorKind::Internal, "the task that acknowledges did not end well")
                .with_source(error)
        });
        let left = self.leave().await;
        settled??;
        left
    }

    /// Looks after the leases if it is time, asks for what there is room for, and waits for whatever comes first.
    async fn step(&mut self) -> std::result::Result<(), Trouble> {
        if Instant::now() >= self.beat_at {
            self.beat().await?;
            self.beat_at = Instant::now() + (self.options.lease / 3).min(LONGEST_BEAT);
        }
        if self.claim().await? {
            return Ok(());
        }
        self.read();
        let beat = tokio::time::sleep_until(self.beat_at);
        let shelf = Arc::clone(&self.shelf);
        if self.waits_for_an_answer() {
            let waits_for_room = self.waits_for_room();
            tokio::select! {
                taken = self.take_answer() => taken?,
                () = shelf.changed(), if waits_for_room => {}
                () = beat => {}
            }
        } else if self.waits_for_room() {
            tokio::select! {
                () = shelf.changed() => {}
                () = beat => {}
            }
        } else {
            tokio::select! {
                () = self.wait_for_more() => {}
                () = beat => self.look_again(|_| true),
            }
        }
        Ok(())
    }

    /// Nothing was there: Redis tells when there is.
    async fn wait_for_more(&mut self) {
        if self.ringing.is_none() {
            self.ringing = bell::hang(self);
        }
        // It is kept if something else comes first: a connection that waits in Redis can do nothing else.
        let rung = match &mut self.ringing {
            Some(ringing) => ringing.await,
            None => pending().await,
        };
        self.ringing = None;
        self.heard(rung).await;
    }

    /// What the bell has told was given to the group by now, or is with the next read.
    async fn heard(&mut self, rung: std::result::Result<Rung, CallError>) {
        match rung {
            Ok(rung) => {
                for (shard, id) in &rung {
                    if let Some(shard) = self.held.get_mut(shard) {
                        shard.delivered = shard.delivered.max(*id);
                    }
                }
                self.look_again(|shard| rung.iter().any(|(rung, _)| *rung == shard));
            }
            Err(failed) => {
                self.report(Trouble::CallError(failed));
                tokio::time::sleep(FIRST_PAUSE).await;
                self.look_again(|_| true);
            }
        }
    }

    pub(super) fn lose(&mut self, shard: u32) {
        self.held.remove(&shard);
        self.shelf.lose(shard);
    }

    pub(super) fn close_gates(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.gate = None);
    }

    /// What passes is logged, and tried again; what does not is told to the subscriber.
    fn report(&self, trouble: Trouble) {
        let heals = !matches!(&trouble, Trouble::Answered(error)
            if matches!(error::cause(error), Cause::OtherNode | Cause::WrongType));
        let error = trouble.error(&self.topic);
        tracing::warn!(topic = %self.topic, group = %self.group, %error, "a subscriber of Redis waits");
        if !heals {
            self.shelf.fail(error);
        }
    }
}

impl Trouble {
    pub(super) fn error(self, topic: &TopicName) -> Error {
        match self {
            Self::CallError(failed) => error::call_error(failed),
            Self::Answered(answer) => error::server_error(&answer),
            Self::LookupError(missing) => missing.into_error(topic),
        }
    }
}
