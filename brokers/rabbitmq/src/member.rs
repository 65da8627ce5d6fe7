//! A member of a group at work: takes what comes from the group's queues, acknowledges, and comes back after outages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{FutureExt, StreamExt};
use landfall_core::{Backoff, Delivery, Error, ErrorKind, Position, Result, TopicName};
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Options;
use crate::confirm::start;
use crate::link::Link;
use crate::names::GroupNames;
use crate::outstanding::{Held, Outstanding};
use crate::subscriber::{Arrived, Receipt, Settled, Verdict};
use crate::{error, layout, wire};

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), max_attempts: u32::MAX };

pub(crate) struct Member {
    pub(crate) options: Arc<Options>,
    pub(crate) link: Arc<Link>,
    pub(crate) topic: TopicName,
    pub(crate) names: GroupNames,
    /// Counts the channels: what was delivered on one cannot be acknowledged on another.
    pub(crate) generation: Arc<AtomicU64>,
    pub(crate) arrived: UnboundedSender<Arrived>,
    pub(crate) settled: UnboundedReceiver<Settled>,
    pub(crate) settling: UnboundedSender<Settled>,
    pub(crate) stop: CancellationToken,
}

/// Consuming from all queues of the group on one channel.
pub(crate) struct Attached {
    channel: Channel,
    /// The queue's number and what came from it; nothing when the server ended it.
    deliveries: SelectAll<BoxStream<'static, (u32, Option<lapin::Result<lapin::message::Delivery>>)>>,
}

impl Drop for Attached {
    /// Ends the channel before its consumers, wherever it is let go. The client would cancel them one by one on a
    /// channel that is still open, and another member would get what comes after the messages that are in hand here,
    /// before these.
    fn drop(&mut self) {
        // Polled once, it is on its way. Nobody waits for the answer, and a channel that is gone has nothing to end.
        let _ = self.channel.close(200, "".into()).now_or_never();
    }
}

impl Member {
    /// Makes what is missing and begins to consume. In every queue this is the active consumer, or waits to be.
    pub(crate) async fn attach(&self) -> Result<Attached> {
        // Connecting has limits of its own, one for each host.
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
        // Counted per queue: quorum queues know no limit per channel.
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

    /// Works until it is stopped, over any number of outages.
    pub(crate) async fn run(mut self, first: Attached) -> Result<()> {
        let mut attached = first;
        loop {
            match self.work(&mut attached).await {
                Ok(()) => return close(&attached.channel).await,
                Err(lost) => tracing::warn!(topic = %self.topic, error = %lost, "RabbitMQ delivers nothing for now"),
            }
            self.generation.fetch_add(1, Ordering::SeqCst);
            drop(attached);
            attached = match self.attach_again().await {
                Some(again) => again,
                None => return Ok(()),
            };
            tracing::info!(topic = %self.topic, "RabbitMQ delivers again");
        }
    }

    /// Tries until it succeeds, it is stopped, or it is clear that trying is of no use, which is said to the subscriber.
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
            // Certificates that are invalid are perhaps being renewed; everything else that can be was valid before.
            if error.kind() == ErrorKind::Conflict {
                // Nobody listens if the subscriber is gone, and then nobody misses it.
                let _ = self.arrived.send(Arrived { generation: u64::MAX, delivery: Err(error) });
                return None;
            }
            tracing::warn!(topic = %self.topic, error = %error, "RabbitMQ cannot be subscribed to");
        }
        None
    }

    /// Until it is stopped (`Ok`) or the channel is lost.
    async fn work(&mut self, attached: &mut Attached) -> Result<()> {
        let generation = self.generation.load(Ordering::SeqCst);
        let mut outstanding = Outstanding::default();
        let gone = |why: &str| Error::new(ErrorKind::Unavailable, why);
        loop {
            let due = outstanding.next_due();
            tokio::select! {
                () = self.stop.cancelled() => {
                    let settled = drain(&mut self.settled, None);
                    outstanding_settle(&attached.channel, &mut outstanding, settled, generation).await?;
                    return Ok(());
                }
                Some(first) = self.settled.recv() => {
                    let settled = drain(&mut self.settled, Some(first));
                    outstanding_settle(&attached.channel, &mut outstanding, settled, generation).await?;
                }
                delivery = attached.deliveries.next() => match delivery {
                    Some((partition, Some(Ok(delivery)))) => {
                        let lapin::message::Delivery { delivery_tag, routing_key, properties, data, .. } = delivery;
                        let payload = Bytes::from(data);
                        let held = Held { partition, routing_key, properties, payload };
                        self.hand_out(generation, delivery_tag, &held);
                        outstanding.insert(delivery_tag, held);
                    }
                    Some((_, Some(Err(error)))) => return Err(error::error("the channel was closed", error)),
                    Some((queue, None)) => return Err(gone(&format!("queue {queue} is gone"))),
                    None => return Err(gone("every queue is gone")),
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(far_away)), if due.is_some() => {
                    for tag in outstanding.take_due(Instant::now()) {
                        if let Some(held) = outstanding.get(tag) {
                            self.hand_out(generation, tag, held);
                        }
                    }
                }
            }
        }
    }

    fn hand_out(&self, generation: u64, tag: u64, held: &Held) {
        let message = wire::message(&self.topic, held.routing_key.as_str(), &held.properties, held.payload.clone());
        let position = Position { partition: held.partition, offset: tag };
        let receipt = Receipt::new(generation, tag, self.settling.clone(), self.generation.clone());
        let delivery = Ok(Delivery::new(message, position, Box::new(receipt)));
        // A subscriber that is gone gives everything back by that.
        let _ = self.arrived.send(Arrived { generation, delivery });
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn drain(settled: &mut UnboundedReceiver<Settled>, first: Option<Settled>) -> Vec<Settled> {
    let mut all: Vec<Settled> = first.into_iter().collect();
    while let Ok(next) = settled.try_recv() {
        all.push(next);
    }
    all
}

/// Tells the server what is finished, and remembers what was given back.
async fn outstanding_settle(
    channel: &Channel,
    outstanding: &mut Outstanding,
    settled: Vec<Settled>,
    generation: u64,
) -> Result<()> {
    let mut finished = Vec::with_capacity(settled.len());
    for Settled { tag, verdict, .. } in settled.into_iter().filter(|settled| settled.generation == generation) {
        match verdict {
            Verdict::Finished => finished.push(tag),
            Verdict::GivenBack(when) => outstanding.delay(tag, when),
        }
    }
    let mut acknowledging = Vec::new();
    for ack in outstanding.finish(finished) {
        acknowledging.push(start(channel.basic_ack(ack.tag, BasicAckOptions { multiple: ack.multiple })).await);
    }
    for acknowledged in acknowledging {
        acknowledged.await.map_err(|error| error::error("an acknowledgement was not sent", error))?;
    }
    Ok(())
}

/// Ends the channel, after which the server has taken every acknowledgement and given the rest to the next member.
async fn close(channel: &Channel) -> Result<()> {
    let closing = tokio::time::timeout(Duration::from_secs(10), channel.close(200, "".into()));
    match closing.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error::error("the channel was not closed in good order", error)),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, "the channel was not closed in time")),
    }
}
