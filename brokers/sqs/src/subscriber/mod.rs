//! The subscriber, and how its deliveries are settled.

pub(crate) mod clock;
pub(crate) mod member;
pub(crate) mod poll;
pub(crate) mod settle;
pub(crate) mod visibility;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_broker_toolkit::{InFlight, InFlightMessage, Receipt, Settle};
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, Message, Position, Result, TopicName};
use tokio::sync::{mpsc, oneshot};

use crate::publisher::CALL_ENTRIES;
use crate::queues::Queues;
use member::{Command, Member};

/// The messages of a queue in flight, by the number that the member gave them.
pub(crate) type Deliveries = InFlight<u64, Fetched>;

/// A message as the member fetched it.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) message: Result<Message>,
    pub(crate) position: Position,
    /// The message group, on FIFO queues.
    pub(crate) group: Option<String>,
}

#[derive(Debug)]
pub(crate) struct SqsSubscriber {
    settler: Arc<Settler>,
    /// The longest that `close` waits.
    timeout: Duration,
}

impl SqsSubscriber {
    pub(crate) fn start(queues: Queues, topic: TopicName) -> Self {
        let (deliveries, timeout) = (Arc::new(Deliveries::default()), queues.options.timeout);
        deliveries.assign(0);
        let (member, commands) = Member::new(queues, topic, deliveries.clone());
        tokio::spawn(member.run());
        Self { settler: Arc::new(Settler { deliveries, commands }), timeout }
    }
}

#[async_trait]
impl Subscriber for SqsSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let settler = &self.settler;
        let next = settler.deliveries.next_or_else(|| settler.send(Command::Wanted)).await?;
        let Some((message, fetched)) = next.map(InFlightMessage::split) else { return Ok(None) };
        if settler.deliveries.waiting() < CALL_ENTRIES {
            settler.send(Command::Low);
        }
        let receipt = Receipt::new(settler.clone(), (message, fetched.group));
        Ok(Some(Delivery::new(fetched.message, fetched.position, receipt)))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        let (ended, end) = oneshot::channel();
        self.settler.send(Command::Stop(Some(ended)));
        match tokio::time::timeout(self.timeout, end).await {
            Ok(_) => Ok(()),
            Err(_) => {
                let reason = "SQS did not confirm every acknowledgement in time; those messages are delivered again";
                Err(Error::new(ErrorKind::Unknown, reason))
            }
        }
    }
}

impl Drop for SqsSubscriber {
    fn drop(&mut self) {
        self.settler.send(Command::Stop(None));
    }
}

/// Hands settled messages to the member's task, which informs SQS of ten at a time. SQS redelivers a message whose
/// settlement is lost on the way.
#[derive(Debug)]
pub(crate) struct Settler {
    deliveries: Arc<Deliveries>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Settler {
    /// The task runs for at least as long as its subscriber, unless the runtime has ended; then SQS redelivers.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl Settle for Settler {
    /// With its message group.
    type Message = (InFlightMessage<u64, ()>, Option<String>);

    fn ack(&self, (message, _): Self::Message) -> Result<()> {
        self.deliveries.finish(&message);
        self.send(Command::Ack(message.offset));
        Ok(())
    }

    fn nack(&self, (message, group): Self::Message, delay: Duration) -> Result<()> {
        self.deliveries.finish(&message);
        self.send(Command::Nack(message.offset, delay));
        if group.is_some() {
            // Successors in the same group that wait here must not overtake it, so they go back to SQS as well.
            for successor in self.deliveries.remove_waiting(|fetched| fetched.group == group) {
                self.send(Command::Nack(successor.offset, Duration::ZERO));
            }
        }
        Ok(())
    }
}
