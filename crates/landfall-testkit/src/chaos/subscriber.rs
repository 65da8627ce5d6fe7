//! A group member whose deliveries are duplicated, delayed, reordered and lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};
use tokio::time::Instant;

use super::ChaosBroker;
use super::delivery_faults::{DeliveryFaults, MembershipLoss};
use super::receipt::{DuplicateReceipt, Membership, Receipt};
use super::reorder_buffer::{Released, ReorderBuffer, key_of};
use super::shared::{Duplicate, Shared};

/// How long a message waits to be overtaken if nothing else arrives.
const OVERTAKEN_WITHIN: Duration = Duration::from_millis(50);

pub(super) struct ChaosSubscriber {
    broker: ChaosBroker,
    topic: TopicName,
    group: GroupName,
    member: u64,
    /// `None` between two memberships.
    subscriber: Option<Box<dyn Subscriber>>,
    membership: Membership,
    buffer: ReorderBuffer,
    /// The membership is lost at the next call of `next`.
    loss: Option<MembershipLoss>,
}

impl ChaosSubscriber {
    pub(super) fn join(
        broker: ChaosBroker,
        topic: &TopicName,
        group: &GroupName,
        subscriber: Box<dyn Subscriber>,
    ) -> Self {
        let member = broker.shared.join(topic, group);
        Self {
            broker,
            topic: topic.clone(),
            group: group.clone(),
            member,
            subscriber: Some(subscriber),
            membership: Arc::new(AtomicBool::new(true)),
            buffer: ReorderBuffer::default(),
            loss: None,
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.broker.shared
    }

    /// Invalidates every delivery in flight: the broker redelivers them.
    fn lose_membership(&mut self) {
        self.membership.store(false, Ordering::SeqCst);
        self.membership = Arc::new(AtomicBool::new(true));
        self.buffer.clear();
        self.subscriber = None;
        self.shared().discard_duplicates(&self.topic, &self.group, self.member);
    }

    /// Returns a buffered delivery or a duplicate that is ready now, else when to ask again.
    fn poll_ready(&mut self) -> std::result::Result<Delivery, Option<Instant>> {
        let (now, shared) = (Instant::now(), self.shared().clone());
        let within_key = shared.options().within_key;
        if let Some(released) = self.buffer.release(now, shared.is_healed(), within_key) {
            let Released { delivery, faults, was_overtaken, was_overtaken_within_key } = released;
            shared.count(|counts| {
                counts.overtaken += u64::from(was_overtaken);
                counts.overtaken_within_key += u64::from(was_overtaken_within_key);
            });
            return Ok(self.hand_out(delivery, faults));
        }
        match shared.next_duplicate(&self.topic, &self.group, self.member) {
            Ok(duplicate) => Ok(self.hand_out_duplicate(duplicate)),
            Err(when) => Err(when.into_iter().chain(self.buffer.next_due(within_key)).min()),
        }
    }

    /// Hands out a new delivery from the broker, or buffers it and returns `None`.
    fn receive(&mut self, delivery: Delivery) -> Option<Delivery> {
        let faults = self.shared().next_faults(&self.topic, &self.group, delivery.position);
        let (now, key) = (Instant::now(), key_of(&delivery));
        let waits_behind_its_key = !self.shared().options().within_key && self.buffer.holds(key);
        if let Some(delay) = faults.delay {
            self.shared().count(|counts| counts.delayed += 1);
            self.buffer.hold(delivery, faults, now + delay, u32::MAX);
        } else if let Some(overtakes) = faults.overtaken_by {
            self.buffer.hold(delivery, faults, now + OVERTAKEN_WITHIN, overtakes);
        } else if waits_behind_its_key {
            self.buffer.hold(delivery, faults, now, 0);
        } else {
            self.buffer.overtaken_by(key);
            return Some(self.hand_out(delivery, faults));
        }
        None
    }

    fn hand_out(&mut self, delivery: Delivery, faults: DeliveryFaults) -> Delivery {
        let (message, position, acknowledge) = delivery.into_parts();
        if let Ok(message) = &message {
            let original = Duplicate { message: message.clone(), position, member: self.member, due: Instant::now() };
            self.shared().duplicate(&self.topic, &self.group, &original, &faults.duplicates);
        }
        self.loss = faults.loss;
        self.shared().count(|counts| counts.deliveries += 1);
        let receipt = Receipt {
            shared: self.shared().clone(),
            membership: self.membership.clone(),
            is_ack_lost: faults.is_ack_lost,
            acknowledge,
        };
        Delivery::new(message, position, Box::new(receipt))
    }

    fn hand_out_duplicate(&self, duplicate: Duplicate) -> Delivery {
        let is_elsewhere = duplicate.member != self.member;
        self.shared().count(|counts| {
            counts.deliveries += 1;
            counts.duplicates_elsewhere += u64::from(is_elsewhere);
        });
        let (message, position) = (duplicate.message.clone(), duplicate.position);
        let (topic, group) = (self.topic.clone(), self.group.clone());
        let membership = self.membership.clone();
        let receipt =
            DuplicateReceipt { shared: self.shared().clone(), membership, topic, group, duplicate: Some(duplicate) };
        Delivery::new(Ok(message), position, Box::new(receipt))
    }
}

#[async_trait]
impl Subscriber for ChaosSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        if let Some(loss) = self.loss.take() {
            self.lose_membership();
            match loss {
                MembershipLoss::Rebalance => self.shared().count(|counts| counts.rebalances += 1),
                MembershipLoss::Disconnect => {
                    self.shared().count(|counts| counts.disconnects += 1);
                    return Err(Error::new(ErrorKind::Unavailable, "the chaos broker dropped the connection"));
                }
            }
        }
        loop {
            let shared = self.shared().clone();
            // Registered before the check, so that a change in between is not missed.
            let mut changed = std::pin::pin!(shared.changed.notified());
            changed.as_mut().enable();
            let next_check = match self.poll_ready() {
                Ok(delivery) => return Ok(Some(delivery)),
                Err(when) => when,
            };
            let subscriber = match &mut self.subscriber {
                Some(subscriber) => subscriber,
                None => {
                    let joined = self.broker.broker.subscribe(&self.topic, &self.group).await?;
                    self.subscriber.insert(joined)
                }
            };
            let pause = async {
                match next_check {
                    Some(when) => tokio::time::sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                next = subscriber.next() => match next? {
                    Some(delivery) => {
                        if let Some(delivery) = self.receive(delivery) {
                            return Ok(Some(delivery));
                        }
                    }
                    None => return Ok(None),
                },
                () = changed => {}
                () = pause => {}
            }
        }
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        self.buffer.clear();
        match self.subscriber.take() {
            Some(subscriber) => subscriber.close().await,
            None => Ok(()),
        }
    }
}

impl Drop for ChaosSubscriber {
    fn drop(&mut self) {
        self.broker.shared.leave(&self.topic, &self.group);
    }
}
