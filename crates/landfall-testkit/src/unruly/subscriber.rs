//! A member of a group that gets more, less, later and in another order than it should like.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Delivery, Error, ErrorKind, GroupName, Result, Subscriber, TopicName};
use tokio::time::Instant;

use super::UnrulyBroker;
use super::crowd::{Copied, Shared};
use super::fate::{Fate, Loss};
use super::receipt::{CopyReceipt, Membership, Receipt};
use super::shelf::{Released, Shelf, key_of};

/// How long a message waits to be overtaken where nothing comes.
const OVERTAKEN_WITHIN: Duration = Duration::from_millis(50);

pub(super) struct UnrulySubscriber {
    broker: UnrulyBroker,
    topic: TopicName,
    group: GroupName,
    member: u64,
    /// None between two memberships.
    subscriber: Option<Box<dyn Subscriber>>,
    membership: Membership,
    shelf: Shelf,
    /// The membership is lost as soon as somebody asks for more.
    loss: Option<Loss>,
}

impl UnrulySubscriber {
    pub(super) fn join(
        broker: UnrulyBroker,
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
            shelf: Shelf::default(),
            loss: None,
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.broker.shared
    }

    /// Whatever was handed out is nobody's any more, and comes again.
    fn lose_membership(&mut self) {
        self.membership.store(false, Ordering::SeqCst);
        self.membership = Arc::new(AtomicBool::new(true));
        self.shelf.clear();
        self.subscriber = None;
        self.shared().drop_copies(&self.topic, &self.group, self.member);
    }

    /// A copy or something from the shelf, if one of them may go now; else when to look again.
    fn take(&mut self) -> std::result::Result<Delivery, Option<Instant>> {
        let (now, shared) = (Instant::now(), self.shared().clone());
        let within_key = shared.troubles().within_key;
        if let Some(released) = self.shelf.release(now, shared.is_healed(), within_key) {
            let Released { delivery, fate, was_passed, was_passed_by_its_key } = released;
            shared.count(|happened| {
                happened.overtaken += u64::from(was_passed);
                happened.overtaken_within_key += u64::from(was_passed_by_its_key);
            });
            return Ok(self.hand_out(delivery, fate));
        }
        match shared.take_copy(&self.topic, &self.group, self.member) {
            Ok(copied) => Ok(self.hand_out_copy(copied)),
            Err(when) => Err(when.into_iter().chain(self.shelf.next_due(within_key)).min()),
        }
    }

    /// Something new from the broker: handed out, or put on the shelf.
    fn sort(&mut self, delivery: Delivery) -> Option<Delivery> {
        let fate = self.shared().fate(&self.topic, &self.group, delivery.position);
        let (now, key) = (Instant::now(), key_of(&delivery));
        let waits_for_its_key = !self.shared().troubles().within_key && self.shelf.holds(key);
        if let Some(delay) = fate.delay {
            self.shared().count(|happened| happened.delayed += 1);
            self.shelf.hold(delivery, fate, now + delay, u32::MAX);
        } else if let Some(to_pass) = fate.overtaken_by {
            self.shelf.hold(delivery, fate, now + OVERTAKEN_WITHIN, to_pass);
        } else if waits_for_its_key {
            self.shelf.hold(delivery, fate, now, 0);
        } else {
            self.shelf.passed(key);
            return Some(self.hand_out(delivery, fate));
        }
        None
    }

    fn hand_out(&mut self, delivery: Delivery, fate: Fate) -> Delivery {
        let (message, position, acknowledge) = delivery.into_parts();
        if let Ok(message) = &message {
            let copied = Copied { message: message.clone(), position, member: self.member, due: Instant::now() };
            self.shared().make_copies(&self.topic, &self.group, &copied, &fate.copies);
        }
        self.loss = fate.loss;
        self.shared().count(|happened| happened.deliveries += 1);
        let receipt = Receipt {
            shared: self.shared().clone(),
            membership: self.membership.clone(),
            is_ack_lost: fate.is_ack_lost,
            acknowledge,
        };
        Delivery::new(message, position, Box::new(receipt))
    }

    fn hand_out_copy(&self, copied: Copied) -> Delivery {
        let is_elsewhere = copied.member != self.member;
        self.shared().count(|happened| {
            happened.deliveries += 1;
            happened.copies_elsewhere += u64::from(is_elsewhere);
        });
        let (message, position) = (copied.message.clone(), copied.position);
        let (topic, group) = (self.topic.clone(), self.group.clone());
        let membership = self.membership.clone();
        let receipt = CopyReceipt { shared: self.shared().clone(), membership, topic, group, copied: Some(copied) };
        Delivery::new(Ok(message), position, Box::new(receipt))
    }
}

#[async_trait]
impl Subscriber for UnrulySubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        if let Some(loss) = self.loss.take() {
            self.lose_membership();
            match loss {
                Loss::Rebalance => self.shared().count(|happened| happened.rebalances += 1),
                Loss::Disconnect => {
                    self.shared().count(|happened| happened.disconnects += 1);
                    return Err(Error::new(ErrorKind::Unavailable, "the connection was lost on purpose"));
                }
            }
        }
        loop {
            let shared = self.shared().clone();
            // Registered before looking, so that a change in between is not missed.
            let mut changed = std::pin::pin!(shared.changed.notified());
            changed.as_mut().enable();
            let look_again = match self.take() {
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
                match look_again {
                    Some(when) => tokio::time::sleep_until(when).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                next = subscriber.next() => match next? {
                    Some(delivery) => {
                        if let Some(delivery) = self.sort(delivery) {
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
        self.shelf.clear();
        match self.subscriber.take() {
            Some(subscriber) => subscriber.close().await,
            None => Ok(()),
        }
    }
}

impl Drop for UnrulySubscriber {
    fn drop(&mut self) {
        self.broker.shared.leave(&self.topic, &self.group);
    }
}
