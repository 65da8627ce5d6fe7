//! The background task of a subscriber: it consumes from the group's queues, acknowledges, and reconnects after
//! outages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{FutureExt, StreamExt};
use landfall_core::{Backoff, Error, ErrorKind, Result, TopicName};
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::config::Options;
use crate::link::Link;
use crate::names::GroupNames;
use crate::publisher::confirm::start;
use crate::subscriber::acks::Acks;
use crate::subscriber::{Deliveries, Finished, Stored};
use crate::{error, layout};

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), max_attempts: u32::MAX };

pub(crate) struct Member {
    pub(crate) options: Arc<Options>,
    pub(crate) link: Arc<Link>,
    pub(crate) topic: TopicName,
    pub(crate) names: GroupNames,
    /// Each channel is a generation: a message delivered on one cannot be acknowledged on another.
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) finished: UnboundedReceiver<Finished>,
    pub(crate) stop: CancellationToken,
}

/// The task has ended, so nothing more is delivered.
impl Drop for Member {
    fn drop(&mut self) {
        drop(self.deliveries.close());
    }
}

/// One channel that consumes from all queues of the group.
pub(crate) struct Attached {
    channel: Channel,
    /// The number of a queue and its delivery; `None` when the server cancelled the consumer.
    deliveries: SelectAll<BoxStream<'static, (u32, Option<lapin::Result<lapin::message::Delivery>>)>>,
}

impl Drop for Attached {
    /// Closes the channel before its consumers. The client would cancel them one by one on an open channel. Another
    /// member would then get the successors of messages that are in flight here.
    fn drop(&mut self) {
        // Polled once, the request is on its way; its response does not matter. A lost channel needs no closing.
        let _ = self.channel.close(200, "".into()).now_or_never();
    }
}

impl Member {
    /// Declares what is missing and starts to consume: in every queue as the active consumer, or waiting to become it.
    pub(crate) async fn attach(&self) -> Result<Attached> {
        // Connecting has its own timeout, one for each host.
        let connection = self.link.connection().await?;
        let attaching = tokio::time::timeout(self.options.timeout, self.consume());
        let Ok(attached) = attaching.await else {
            self.link.give_up(&connection).await;
            return Err(Error::new(ErrorKind::Unavailable, format!("subscribing to {} took too long", self.topic)));
        };
        attached
    }

    async fn consume(&self) -> Result<Attached> {
        let failed = |error| error::error(format!("topic {} cannot be subscribed to", self.topic), error);
        let channel = self.link.channel().await?;
        if self.options.create {
            layout::declare_group(&channel, &self.topic, &self.names).await?;
        }
        // Per queue: quorum queues have no limit per channel.
        let each = self.options.in_flight.div_ceil(self.options.partitions);
        let each = u16::try_from(each).unwrap_or(u16::MAX);
        channel.basic_qos(each, BasicQosOptions::default()).await.map_err(failed)?;
        let mut attached = Attached { channel, deliveries: SelectAll::new() };
        for (number, queue) in (0_u32..).zip(&self.names.queues) {
            let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
            let consuming = attached.channel.basic_consume(queue.clone(), "".into(), options, arguments);
            let consumer = consuming.await.map_err(failed)?;
            let ended = futures_util::stream::once(async move { (number, None) });
            attached.deliveries.push(consumer.map(move |delivery| (number, Some(delivery))).chain(ended).boxed());
        }
        Ok(attached)
    }

    /// Runs until it is stopped, over any number of outages.
    pub(crate) async fn run(mut self, first: Attached) -> Result<()> {
        let mut attached = first;
        loop {
            match self.work(&mut attached).await {
                Ok(()) => return close(&attached.channel).await,
                Err(error) => tracing::warn!(topic = %self.topic, %error, "RabbitMQ unavailable, reconnecting"),
            }
            self.deliveries.revoke(0);
            drop(attached);
            attached = match self.attach_again().await {
                Some(again) => again,
                None => return Ok(()),
            };
            tracing::info!(topic = %self.topic, "consuming from RabbitMQ again");
        }
    }

    /// Retries with backoff until it succeeds, is stopped, or fails permanently, which the subscriber reports.
    async fn attach_again(&self) -> Option<Attached> {
        for attempt in 1.. {
            let delay = BACKOFF.delay_after(attempt, rand::random()).unwrap_or(BACKOFF.cap);
            let attempt = async {
                tokio::time::sleep(delay).await;
                self.attach().await
            };
            let error = tokio::select! {
                () = self.stop.cancelled() => return None,
                attached = attempt => match attached {
                    Ok(attached) => return Some(attached),
                    Err(error) => error,
                },
            };
            // Other errors are retried: the settings were valid before, and a certificate may be about to be renewed.
            if error.kind() == ErrorKind::Conflict {
                self.deliveries.fail(error);
                return None;
            }
            tracing::warn!(topic = %self.topic, %error, "RabbitMQ unavailable, backing off");
        }
        None
    }

    /// Runs until it is stopped (`Ok`) or the channel is lost.
    async fn work(&mut self, attached: &mut Attached) -> Result<()> {
        let (generation, mut acks) = (self.deliveries.assign(0), Acks::default());
        let gone = |why: &str| Error::new(ErrorKind::Unavailable, why);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => {
                    return self.acknowledge(&attached.channel, &mut acks, generation, None).await;
                }
                Some(first) = self.finished.recv() => {
                    self.acknowledge(&attached.channel, &mut acks, generation, Some(first)).await?;
                }
                delivery = attached.deliveries.next() => match delivery {
                    Some((partition, Some(Ok(delivery)))) => {
                        let lapin::message::Delivery { delivery_tag, routing_key, properties, data, .. } = delivery;
                        let stored = Stored { partition, routing_key, properties, payload: Bytes::from(data) };
                        acks.arrived(delivery_tag);
                        self.deliveries.arrive([(0, delivery_tag, stored)]);
                    }
                    Some((_, Some(Err(error)))) => return Err(error::error("the channel was closed", error)),
                    Some((queue, None)) => return Err(gone(&format!("queue {queue} is gone"))),
                    None => return Err(gone("every queue is gone")),
                },
            }
        }
    }

    /// Acknowledges everything that is finished by now.
    async fn acknowledge(
        &mut self,
        channel: &Channel,
        acks: &mut Acks,
        generation: u64,
        first: Option<Finished>,
    ) -> Result<()> {
        let mut finished: Vec<Finished> = first.into_iter().collect();
        while let Ok(next) = self.finished.try_recv() {
            finished.push(next);
        }
        let current = finished.into_iter().filter(|finished| finished.generation == generation);
        let tags = current.map(|finished| finished.tag).collect();
        let mut in_flight = Vec::new();
        for ack in acks.finish(tags, self.deliveries.first_unfinished(0)) {
            in_flight.push(start(channel.basic_ack(ack.tag, BasicAckOptions { multiple: ack.multiple })).await);
        }
        for acknowledged in in_flight {
            acknowledged.await.map_err(|error| error::error("an acknowledgement was not sent", error))?;
        }
        Ok(())
    }
}

/// Closes the channel, after which the server has processed every acknowledgement and given the rest to the next
/// member.
async fn close(channel: &Channel) -> Result<()> {
    let closing = tokio::time::timeout(Duration::from_secs(10), channel.close(200, "".into()));
    match closing.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error::error("the channel was not closed", error)),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "the channel was not closed in time")),
    }
}
