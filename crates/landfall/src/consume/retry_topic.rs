//! The topic `<topic>.retry`: what failed and has no order is sent there and acknowledged, and comes back when it is due.
//!
//! It is the same message under the same id, so the inbox recognises it wherever it comes from. What is not accepted for
//! certain stays where it is; if it was accepted all the same, there are two, and one of them takes effect.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    Acknowledge, Arrival, Broker, Delivery, Failure, GroupName, Inbox, Message, Outcome, Position, Publisher, Result,
    SystemHeader, Timestamp, TopicName,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::apart::{End, Way};
use super::attempt::{Attempts, pause_unless_stopped};
use super::letter_topic::letter;
use super::options::Options;
use super::tally::{LONGEST_RETRY_AFTER, Tally};
use super::work::Work;

/// Where to send what is to be tried later.
pub(super) struct RetryTopic {
    topic: TopicName,
    /// Where they come from and belong.
    main: TopicName,
    publisher: Arc<dyn Publisher>,
    /// Whether another group gets a copy of its own, and so may pass over what is not for it.
    has_groups: bool,
}

/// A message that came back.
struct Returned {
    message: Message,
    origin: Option<Position>,
    attempts: u32,
    due: Timestamp,
}

impl RetryTopic {
    /// `Err` if that is no name for a topic: it may be too long.
    pub(super) fn of(main: &TopicName, broker: &dyn Broker) -> Result<Self> {
        let topic = TopicName::new(format!("{main}.retry"))?;
        let (publisher, has_groups) = (broker.publisher(), broker.capabilities().groups);
        Ok(Self { topic, main: main.clone(), publisher, has_groups })
    }

    /// Whether the broker has it now, for certain.
    pub(super) async fn take(
        &self,
        arrival: Arrival<'_>,
        group: &GroupName,
        attempts: u32,
        failure: &Failure,
        pause: Duration,
    ) -> bool {
        let mut message = letter(arrival, self.topic.clone(), group, attempts, failure);
        let due = Timestamp::now().as_millis().saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
        message.headers.note(SystemHeader::RetryAt, Timestamp::from_millis(due));
        match self.publisher.publish(std::slice::from_ref(&message)).await.first() {
            Some(Outcome::Accepted(_)) => {
                fail::fail_point!("lane.after-publish");
                true
            }
            outcome => {
                tracing::warn!(message_id = %message.id, ?outcome, lane = %self.topic, "not taken; it waits here");
                false
            }
        }
    }

    /// The message as it was, or `None` if it is for another group.
    fn returned(&self, moved: &Message, group: &GroupName) -> Option<Returned> {
        let noted = |header| moved.headers.noted(header);
        if self.has_groups && noted(SystemHeader::Group).is_some_and(|name| name != group.as_str()) {
            return None;
        }
        let number = |header| noted(header).and_then(|text| text.parse::<u64>().ok());
        let place = number(SystemHeader::OriginalPartition).zip(number(SystemHeader::OriginalOffset));
        let origin = place.map(|(partition, offset)| Position { partition: partition as u32, offset });
        let headers = moved.headers.without_notes();
        let message = Message { topic: self.main.clone(), headers, ..moved.clone() };
        let attempts = number(SystemHeader::Attempts).unwrap_or_default();
        // Without a time it is due: somebody put it there by hand.
        let due = noted(SystemHeader::RetryAt).and_then(|text| text.parse().ok()).unwrap_or(moved.time);
        Some(Returned { message, origin, attempts: u32::try_from(attempts).unwrap_or(u32::MAX), due })
    }
}

/// Takes from the lane what is due, until `stop`. A broker that cannot be read is waited for.
pub(super) async fn drain<D: Inbox, W: Work<D>>(
    attempts: Arc<Attempts<D, W>>,
    broker: Arc<dyn Broker>,
    options: Options,
    stop: CancellationToken,
) -> Result<()> {
    while !stop.is_cancelled() {
        match receive(&attempts, &*broker, &options, &stop).await {
            Err(error) if error.is_temporary() => {
                tracing::warn!(%error, "the retry lane cannot be read; waiting");
                pause_unless_stopped(options.backoff.first, &stop).await;
            }
            result => return result,
        }
    }
    Ok(())
}

/// One membership.
async fn receive<D: Inbox, W: Work<D>>(
    attempts: &Arc<Attempts<D, W>>,
    broker: &dyn Broker,
    options: &Options,
    stop: &CancellationToken,
) -> Result<()> {
    let Some(lane) = &attempts.retry_topic else { return Ok(()) };
    let mut subscriber = broker.subscribe(&lane.topic, &attempts.group).await?;
    // What is not due yet waits here, so that one with a long pause keeps nobody behind it who has a short one.
    let room = Arc::new(Semaphore::new(options.room()));
    let membership = stop.child_token();
    let mut tasks = JoinSet::new();
    let result = loop {
        let place = tokio::select! {
            () = stop.cancelled() => break Ok(()),
            Some(_) = tasks.join_next() => continue,
            place = room.clone().acquire_owned() => place,
        };
        let delivery = tokio::select! {
            () = stop.cancelled() => break Ok(()),
            next = subscriber.next() => match next {
                Ok(Some(delivery)) => delivery,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
        };
        let (attempts, stop) = (attempts.clone(), membership.clone());
        tasks.spawn(async move {
            attempts.settle_returned(delivery, &stop).await;
            drop(place);
        });
    };
    membership.cancel();
    while tasks.join_next().await.is_some() {}
    result.and(subscriber.close().await)
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    async fn settle_returned(&self, delivery: Delivery, stop: &CancellationToken) {
        let (moved, position, acknowledge) = delivery.into_parts();
        let end = match &moved {
            Ok(moved) => self.try_returned(moved, stop).await,
            Err(error) => self.settle_unreadable(error, position, stop).await,
        };
        self.conclude(acknowledge, end).await;
    }

    async fn try_returned(&self, moved: &Message, stop: &CancellationToken) -> Option<End> {
        let returned = self.retry_topic.as_ref()?.returned(moved, &self.group);
        let Some(Returned { message, origin, attempts, due }) = returned else { return Some(End::NotOurs) };
        // As far as the clocks agree. One that is hours ahead must not put it off for hours.
        let left = Timestamp::now().elapsed_since(due).min(self.backoff.cap.max(LONGEST_RETRY_AFTER));
        if !pause_unless_stopped(left, stop).await {
            return None;
        }
        let way = Way { tally: Tally::after(attempts), failed: None, has_lane: false };
        self.settle_message(Arrival { message: &message, origin }, way, stop).await
    }

    /// Tells the broker how it ended; without an end the delivery is given back by being dropped.
    pub(super) async fn conclude(&self, acknowledge: Box<dyn Acknowledge>, end: Option<End>) {
        match end {
            Some(End::Settled(outcome)) => self.acknowledge(acknowledge, outcome).await,
            Some(End::NotOurs) => {
                if let Err(error) = acknowledge.ack().await {
                    tracing::warn!(%error, "not acknowledged; it comes again and is passed over again");
                }
            }
            Some(End::Refused(delay)) => {
                metrics::counter!("landfall_handled_total", "outcome" => "refused").increment(1);
                if let Err(error) = acknowledge.nack(delay).await {
                    tracing::warn!(%error, "not given back; the broker delivers it again by itself");
                }
            }
            Some(End::Early(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use landfall_core::Key;
    use tokio::sync::Mutex;

    use super::*;

    /// Takes everything, and shows what it took.
    #[derive(Default)]
    struct Taken(Mutex<Vec<Message>>);

    #[async_trait]
    impl Publisher for Taken {
        async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
            self.0.lock().await.extend_from_slice(batch);
            vec![Outcome::Accepted(Position { partition: 0, offset: 0 }); batch.len()]
        }
    }

    #[tokio::test]
    async fn a_message_comes_back_as_it_was_and_only_to_the_group_it_failed_in() {
        let [main, topic] = ["orders", "orders.retry"].map(|name| TopicName::new(name).unwrap());
        let [stock, payment] = ["stock", "payment"].map(|name| GroupName::new(name).unwrap());
        let taken = Arc::new(Taken::default());
        let mut lane = RetryTopic { topic, main: main.clone(), publisher: taken.clone(), has_groups: true };
        let mut message = Message::new(main, "book").with_key(Key::new("a").unwrap()).with_sequence(7);
        message.headers.insert("tenant", "eu").unwrap();
        let origin = Some(Position { partition: 3, offset: 42 });
        let arrival = Arrival { message: &message, origin };
        let (before, pause) = (Timestamp::now(), Duration::from_secs(60));
        assert!(lane.take(arrival, &stock, 2, &Failure::retry("no"), pause).await);

        let moved = taken.0.lock().await.remove(0);
        assert_ne!((&moved.topic, &moved.headers), (&message.topic, &message.headers));
        let returned = lane.returned(&moved, &stock).unwrap();
        assert_eq!((returned.message, returned.origin, returned.attempts), (message, origin, 2));
        assert!(returned.due.as_millis() >= before.as_millis() + 60_000);
        assert!(lane.returned(&moved, &payment).is_none());
        lane.has_groups = false;
        assert!(lane.returned(&moved, &payment).is_some(), "nobody else would get it");
    }
}
