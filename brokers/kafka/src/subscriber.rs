//! A member of a group, and the acknowledgements of what it was given.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, Error, ErrorKind, GroupName, Position, Result, Subscriber, TopicName};
use tokio::sync::oneshot;

use crate::config::Options;
use crate::in_hand::{InHand, Item, Next};
use crate::polling::{self, Joining};
use crate::topics::Topics;

#[derive(Debug)]
pub(crate) struct KafkaSubscriber {
    topic: TopicName,
    in_hand: Arc<InHand>,
    /// Answers when the member has left its group.
    left: Option<oneshot::Receiver<()>>,
    patience: Duration,
}

impl KafkaSubscriber {
    /// Joins `group` on `topic`, which is there unless nobody may make it; the group shares out its partitions while
    /// the first `next` waits.
    pub(crate) fn join(options: &Options, topics: &Topics, topic: &TopicName, group: &GroupName) -> Result<Self> {
        let in_hand = Arc::new(InHand::new(options.in_flight));
        let joining = Joining {
            options: options.clone(),
            topic: topic.clone(),
            name: topics.name(topic)?,
            group: group.clone(),
            in_hand: in_hand.clone(),
        };
        let member = joining.join()?;
        let (leaving, left) = oneshot::channel();
        let thread = std::thread::Builder::new().name("landfall-kafka".into()).spawn(move || {
            polling::run(member, &joining);
            drop(leaving);
        });
        thread.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "the thread of a subscriber cannot be started").with_source(cause)
        })?;
        Ok(Self { topic: topic.clone(), in_hand, left: Some(left), patience: options.timeout })
    }
}

impl KafkaSubscriber {
    fn delivery(&self, item: Item) -> Delivery {
        let message = item.record.message(&self.topic);
        let position = Position {
            partition: u32::try_from(item.record.partition).unwrap_or_default(),
            offset: u64::try_from(item.record.offset).unwrap_or_default(),
        };
        Delivery::new(message, position, Box::new(Acknowledgement { item: Some(item), in_hand: self.in_hand.clone() }))
    }
}

#[async_trait]
impl Subscriber for KafkaSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            match self.in_hand.next() {
                Next::Item(item) => return Ok(Some(self.delivery(item))),
                Next::Failed(error) => return Err(error),
                Next::Closed => return Ok(None),
                Next::Nothing(None) => self.in_hand.arrived.notified().await,
                Next::Nothing(Some(due)) => {
                    let _due = tokio::time::timeout_at(due.into(), self.in_hand.arrived.notified()).await;
                }
            }
        }
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        self.in_hand.close();
        let Some(left) = self.left.take() else { return Ok(()) };
        match tokio::time::timeout(self.patience, left).await {
            Ok(_) => Ok(()),
            Err(late) => {
                let sentence = "the member did not leave its group in time; what it finished last may come again";
                Err(Error::new(ErrorKind::Unavailable, sentence).with_source(late))
            }
        }
    }
}

impl Drop for KafkaSubscriber {
    fn drop(&mut self) {
        self.in_hand.close();
    }
}

/// Behind one delivery.
#[derive(Debug)]
struct Acknowledgement {
    item: Option<Item>,
    in_hand: Arc<InHand>,
}

#[async_trait]
impl Acknowledge for Acknowledgement {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        if let Some(item) = self.item.take() {
            self.in_hand.finish(&item);
        }
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        if let Some(item) = self.item.take() {
            self.in_hand.give_back(item, delay);
        }
        Ok(())
    }
}

impl Drop for Acknowledgement {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.in_hand.give_back(item, Duration::ZERO);
        }
    }
}
