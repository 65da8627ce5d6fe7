//! The producing service: writes the next order of its key and its message in one transaction.
//!
//! There is one writer per key, so that the order of a key's transactions is known. Writers of different keys contend
//! as much as the database allows. Some transactions are rolled back on purpose at their very end.

use std::time::Duration;

use landfall::produce::Outbox;
use landfall::{ErrorKind, Key, Message, MessageId, Mode, OutboxQueue, OutboxWriter, Result, TopicName};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_util::sync::CancellationToken;

use crate::business_tables::BusinessTables;
use crate::handler::Behaviour;
use crate::history::{Event, EventSink};
use crate::planted_bug::PlantedBug;
use crate::setup::{Setup, TOPIC};

pub struct Writer<D> {
    database: D,
    outbox: Outbox<D>,
    topic: TopicName,
    key: Key,
    random: StdRng,
    handler_failures: bool,
    planted_bug: Option<PlantedBug>,
    record: EventSink,
}

impl<D: BusinessTables + OutboxWriter + OutboxQueue> Writer<D> {
    pub fn new(database: D, setup: &Setup, number: u32, record: EventSink) -> Result<Self> {
        Ok(Self {
            outbox: Outbox::new(database.clone()),
            database,
            topic: TopicName::new(TOPIC)?,
            key: Key::new(format!("customer-{number}"))?,
            random: StdRng::seed_from_u64(setup.seed.wrapping_mul(1_000).wrapping_add(u64::from(number))),
            handler_failures: setup.handler_failures,
            planted_bug: setup.planted_bug,
            record,
        })
    }

    /// Writes until `stop`, or until `writes` transactions are known to be committed.
    pub async fn run(mut self, writes: Option<u32>, stop: CancellationToken) {
        let mut committed = 0;
        while !stop.is_cancelled() && writes.is_none_or(|writes| committed < writes) {
            committed += u32::from(self.write().await);
            // Simulates the load of a service: bursts with quiet periods between them.
            let pause = if self.random.random_bool(0.5) { 0 } else { self.random.random_range(5..50) };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Runs one transaction and records its start and its outcome. Returns whether it is known to be committed.
    async fn write(&mut self) -> bool {
        let id = MessageId::new();
        (self.record)(Event::Invoke { id, key: self.key.to_string() });
        let end = match self.transact(id).await {
            Ok(true) => Event::Ok { id },
            Ok(false) => Event::Failed { id },
            Err(error) if error.kind() == ErrorKind::Unknown => Event::Unknown { id },
            Err(_) => Event::Failed { id },
        };
        let is_committed = end == Event::Ok { id };
        (self.record)(end);
        is_committed
    }

    async fn transact(&mut self, id: MessageId) -> Result<bool> {
        let behaviour = Behaviour::random(&mut self.random, self.handler_failures);
        let mut message = Message::new(self.topic.clone(), behaviour.as_str()).with_id(id).with_key(self.key.clone());
        if self.planted_bug == Some(PlantedBug::SkipInbox) {
            message.mode = Mode::AtLeastOnce;
        }
        if self.planted_bug == Some(PlantedBug::EnqueueOutside) {
            self.database.append(std::slice::from_ref(&message.clone().with_sequence(0))).await?;
        }
        let mut transaction = self.outbox.begin().await?;
        message.sequence = Some(self.database.next_sequence(&mut transaction, self.key.as_str()).await?);
        self.database.record_order(&mut transaction, &message).await?;
        if self.planted_bug != Some(PlantedBug::EnqueueOutside) {
            self.outbox.enqueue(&mut transaction, &message).await?;
        }
        if self.random.random_bool(0.1) {
            // Dropping the transaction rolls it back at the last moment: everything but the commit is done.
            return Ok(false);
        }
        self.outbox.commit(transaction).await?;
        Ok(true)
    }
}

impl<D> std::fmt::Debug for Writer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("key", &self.key).finish_non_exhaustive()
    }
}
