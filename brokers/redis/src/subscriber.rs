//! One member of a group on one topic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, Error, ErrorKind, GroupName, Position, Result, Subscriber, TopicName};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::broker::Redis;
use crate::entry::EntryId;
use crate::group::member::Member;
use crate::group::shelf::{Place, Shelf};
use crate::wire;

/// Hands out what a task in the background has fetched: whoever stops waiting for it loses nothing.
#[derive(Debug)]
pub(crate) struct RedisSubscriber {
    topic: TopicName,
    shelf: Arc<Shelf>,
    stop: CancellationToken,
    member: Option<JoinHandle<Result<()>>>,
}

impl RedisSubscriber {
    pub(crate) async fn join(redis: &Redis, topic: &TopicName, group: &GroupName) -> Result<Self> {
        let (shelf, finished) = Shelf::new();
        let shelf = Arc::new(shelf);
        let mut member = Member::new(redis, topic, group, Arc::clone(&shelf));
        member.prepare().await?;
        let stop = CancellationToken::new();
        let member = tokio::spawn(member.run(finished, stop.clone()));
        Ok(Self { topic: topic.clone(), shelf, stop, member: Some(member) })
    }
}

#[async_trait]
impl Subscriber for RedisSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            if let Some((place, entry)) = self.shelf.take(Instant::now()) {
                let position = Position { partition: place.shard, offset: place.id.offset() };
                let receipt = Receipt { shelf: Arc::clone(&self.shelf), place: Some(place) };
                return Ok(Some(Delivery::new(wire::message(&self.topic, &entry), position, Box::new(receipt))));
            }
            if let Some(error) = self.shelf.take_error() {
                return Err(error);
            }
            let due = async {
                match self.shelf.next_due() {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shelf.arrived() => {}
                () = due => {}
            }
        }
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        self.shelf.end();
        self.stop.cancel();
        match self.member.take() {
            Some(member) => member.await.map_err(|error| {
                Error::new(ErrorKind::Internal, "the task of a subscriber did not end well").with_source(error)
            })?,
            None => Ok(()),
        }
    }
}

impl Drop for RedisSubscriber {
    /// The task goes on until it has told Redis that it leaves.
    fn drop(&mut self) {
        self.shelf.end();
        self.stop.cancel();
    }
}

/// Stands behind a delivery; dropped unsettled, it gives the message back.
#[derive(Debug)]
struct Receipt {
    shelf: Arc<Shelf>,
    /// Taken when it is settled.
    place: Option<Place>,
}

#[async_trait]
impl Acknowledge for Receipt {
    /// Redis is told a moment later, together with others. It is told even if the stream has gone to another member: the
    /// message is finished, whoever has it now.
    async fn ack(mut self: Box<Self>) -> Result<()> {
        match self.place.take() {
            Some(place) => self.shelf.finish(place),
            None => Ok(()),
        }
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        if let Some(place) = self.place.take() {
            self.shelf.give_back(place, delay);
        }
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.shelf.give_back(place, Duration::ZERO);
        }
    }
}

/// For what is told about an entry by its id.
pub(crate) fn left(shard: u32, id: EntryId) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("entry {id} of partition {shard} is delivered again, since its subscriber has left the group"),
    )
}
