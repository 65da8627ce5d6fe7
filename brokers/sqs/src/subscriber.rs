//! The subscriber's end: it takes from the shelf what the member's task puts there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, Error, ErrorKind, Result, Subscriber, TopicName};
use tokio::sync::{mpsc, oneshot};

use crate::member::{Command, Member};
use crate::plan::CALL_ENTRIES;
use crate::queues::Queues;
use crate::shelf::{Shelf, Taken};

#[derive(Debug)]
pub(crate) struct SqsSubscriber {
    shelf: Arc<Shelf>,
    tell: mpsc::UnboundedSender<Command>,
    /// How long closing may take.
    timeout: Duration,
}

impl SqsSubscriber {
    pub(crate) fn start(queues: Queues, topic: TopicName) -> Self {
        let (shelf, timeout) = (Arc::new(Shelf::default()), queues.options.timeout);
        let (member, tell) = Member::new(queues, topic, shelf.clone());
        tokio::spawn(member.run());
        Self { shelf, tell, timeout }
    }
}

#[async_trait]
impl Subscriber for SqsSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            match self.shelf.take() {
                Taken::Delivery(delivery, left) => {
                    if left < CALL_ENTRIES {
                        self.say(Command::Low);
                    }
                    return Ok(Some(*delivery));
                }
                Taken::Failed(error) => return Err(error),
                Taken::Closed => return Ok(None),
                Taken::Nothing => self.say(Command::Wanted),
            }
            self.shelf.changed.notified().await;
        }
    }

    async fn close(self: Box<Self>) -> Result<()> {
        let (ended, end) = oneshot::channel();
        self.say(Command::Stop(Some(ended)));
        match tokio::time::timeout(self.timeout, end).await {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Error::new(ErrorKind::Unknown, "SQS was not told of every acknowledgement; those come again"))
            }
        }
    }
}

impl SqsSubscriber {
    /// The task is there for as long as its subscriber is, unless the runtime has ended.
    fn say(&self, command: Command) {
        let _ = self.tell.send(command);
    }
}

impl Drop for SqsSubscriber {
    fn drop(&mut self) {
        self.say(Command::Stop(None));
    }
}

/// Stands behind a delivery. An acknowledgement is handed to the member's task, which tells SQS of ten at a time: one
/// that gets lost on the way means that the message comes again. Dropped undecided, it gives the message back.
#[derive(Debug)]
pub(crate) struct Receipt {
    number: u64,
    group: Option<String>,
    shelf: Arc<Shelf>,
    /// Taken when it is decided.
    tell: Option<mpsc::UnboundedSender<Command>>,
}

impl Receipt {
    pub(crate) fn new(
        number: u64,
        group: Option<String>,
        shelf: Arc<Shelf>,
        tell: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self { number, group, shelf, tell: Some(tell) }
    }

    /// Without a task there is nobody who keeps the message from coming again.
    fn finish(&mut self) {
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(Command::Finish(self.number));
        }
    }

    fn give_back(&mut self, delay: Duration) {
        let Some(tell) = self.tell.take() else { return };
        let _ = tell.send(Command::GiveBack(self.number, delay));
        if let Some(group) = &self.group {
            // What came behind it and was not handed out must not overtake it: dropped, it is given back as well.
            drop(self.shelf.take_group(group));
        }
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.finish();
        Ok(())
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        self.give_back(delay);
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.give_back(Duration::ZERO);
    }
}
