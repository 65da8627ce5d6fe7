//! An inbox whose transaction begins after the handler's call.
//!
//! A handler's writes and the inbox row normally share a transaction. A POST writes nothing in the database: a
//! transaction around it would protect nothing and stay open until the receiver responds. On SQLite it would block all
//! other writers. So the message is looked up first, then posted, and its row is written last.
//!
//! No message is lost: a crash in between causes a redelivery, like any crash before the commit.

use std::time::Duration;

use async_trait::async_trait;
use landfall::adapter::{Admission, Arrival, Origin, Parking, RedriveItem, RehearsalTask, Retry, Setback};
use landfall::{
    Database, DeadLetterId, Deliveries, DeliveryFilter, Error, ErrorKind, GroupName, Inbox, Message, MessageId,
    OutboxWriter, RehearsalId, RehearsalResult, Rehearsals, RehearsedLetter, Result, RetryingDelivery, Timestamp,
    TopicName,
};

#[derive(Clone)]
pub(crate) struct DeferredInbox<D> {
    database: D,
    /// Whether a redriven letter stays locked during its call. False on a database with a single writer: then there is
    /// one redrive worker, and the letter's state is compared when the call is done.
    locks: bool,
}

/// The writes to make after the call.
pub(crate) struct DeferredTransaction<D: Inbox> {
    admitted: Vec<(GroupName, Message, Origin)>,
    open: Option<D::Transaction>,
}

impl<D: Inbox> DeferredInbox<D> {
    pub(crate) fn new(database: D, locks: bool) -> Self {
        Self { database, locks }
    }
}

impl<D: Inbox> Database for DeferredInbox<D> {
    type Connection = DeferredTransaction<D>;
    type Transaction = Box<DeferredTransaction<D>>;

    async fn begin(&self) -> Result<Box<DeferredTransaction<D>>> {
        Ok(Box::new(DeferredTransaction { admitted: Vec::new(), open: None }))
    }

    async fn commit(&self, pending: Box<DeferredTransaction<D>>) -> Result<()> {
        let DeferredTransaction { admitted, open } = *pending;
        if let Some(open) = open {
            return self.database.commit(open).await;
        }
        if admitted.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        let mut changes_something = false;
        for (group, message, origin) in &admitted {
            // The second result is as valid as the first: a concurrent delivery made this one a duplicate, or the key
            // was held meanwhile, and the message is queued and posted once more.
            let admission = self.database.admit(&mut transaction, group, message, *origin).await?;
            changes_something |= admission != Admission::Duplicate;
        }
        match changes_something {
            true => self.database.commit(transaction).await,
            false => self.database.flush(transaction).await,
        }
    }

    async fn flush(&self, pending: Box<DeferredTransaction<D>>) -> Result<()> {
        match pending.open {
            Some(open) => self.database.flush(open).await,
            // `admit` flushed what it read.
            None => Ok(()),
        }
    }
}

impl<D: Inbox> Inbox for DeferredInbox<D> {
    async fn admit(
        &self,
        pending: &mut DeferredTransaction<D>,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<Admission> {
        let mut transaction = self.database.begin().await?;
        let admission = self.database.admit(&mut transaction, group, message, origin).await?;
        match admission {
            Admission::Fresh => pending.admitted.push((group.clone(), message.clone(), origin)),
            // A held message is not posted, so its row is committed now.
            Admission::Held => self.database.commit_seen(transaction).await?,
            Admission::Duplicate => self.database.flush(transaction).await?,
        }
        Ok(admission)
    }

    /// No handler of a push calls it.
    async fn keep_forever(&self, _: &mut DeferredTransaction<D>, _: &GroupName, _: MessageId) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "a push subscription has no guard rows"))
    }

    async fn admit_batch(
        &self,
        pending: &mut DeferredTransaction<D>,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        let mut admissions = Vec::with_capacity(batch.len());
        for arrival in batch {
            admissions.push(self.admit(pending, group, arrival.message, arrival.origin).await?);
        }
        Ok(admissions)
    }

    async fn park(
        &self,
        pending: &mut DeferredTransaction<D>,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> Result<DeadLetterId> {
        let mut transaction = self.database.begin().await?;
        if self.database.admit(&mut transaction, group, message, origin).await? != Admission::Fresh {
            let text = format!("message {} was settled by another consumer during the call", message.id);
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let letter = self.database.park(&mut transaction, group, message, origin, parking).await?;
        pending.open = Some(transaction);
        Ok(letter)
    }

    async fn next_redriven(
        &self,
        pending: &mut DeferredTransaction<D>,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> Result<Option<RedriveItem>> {
        let mut transaction = self.database.begin().await?;
        let item = self.database.next_redriven(&mut transaction, group, resting).await?;
        if self.locks {
            pending.open = Some(transaction);
        }
        Ok(item)
    }

    async fn complete_redriven(&self, pending: &mut DeferredTransaction<D>, item: &RedriveItem) -> Result<()> {
        self.database.complete_redriven(self.open(pending).await?, item).await
    }

    async fn park_redriven(
        &self,
        pending: &mut DeferredTransaction<D>,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        self.database.park_redriven(self.open(pending).await?, item, setback).await
    }
}

/// Failed deliveries are recorded outside of any transaction.
#[async_trait]
impl<D: Inbox> Deliveries for DeferredInbox<D> {
    async fn record_retry(&self, group: &GroupName, message: &Message, retry: Retry<'_>) -> Result<()> {
        self.database.record_retry(group, message, retry).await
    }

    async fn clear_retry(&self, group: &GroupName, message: &Message) -> Result<()> {
        self.database.clear_retry(group, message).await
    }

    async fn retrying(&self, filter: &DeliveryFilter, limit: usize) -> Result<Vec<RetryingDelivery>> {
        self.database.retrying(filter, limit).await
    }

    async fn retrying_counts(&self) -> Result<Vec<(TopicName, GroupName, u64)>> {
        self.database.retrying_counts().await
    }

    async fn admitted_by(&self, id: MessageId) -> Result<Vec<(GroupName, Timestamp)>> {
        self.database.admitted_by(id).await
    }
}

#[async_trait]
impl<D: Inbox + Rehearsals> Rehearsals for DeferredInbox<D> {
    async fn request_rehearsal(&self, letters: &[DeadLetterId], actor: &str) -> Result<RehearsalId> {
        self.database.request_rehearsal(letters, actor).await
    }

    async fn rehearsal(&self, id: RehearsalId) -> Result<Vec<RehearsedLetter>> {
        self.database.rehearsal(id).await
    }

    async fn claim_rehearsal(&self, group: &GroupName, lease: Duration) -> Result<Option<RehearsalTask>> {
        self.database.claim_rehearsal(group, lease).await
    }

    async fn record_rehearsal(&self, task: &RehearsalTask, result: &RehearsalResult) -> Result<bool> {
        self.database.record_rehearsal(task, result).await
    }
}

/// Enqueues the copy for the `.dlq` topic in the transaction that parks the message.
impl<D: Inbox + OutboxWriter> OutboxWriter for DeferredInbox<D> {
    async fn enqueue(&self, pending: &mut DeferredTransaction<D>, messages: &[Message]) -> Result<()> {
        self.database.enqueue(self.open(pending).await?, messages).await
    }

    fn wake(&self) {
        self.database.wake();
    }
}

impl<D: Inbox> DeferredInbox<D> {
    /// Returns the open transaction, or begins one.
    async fn open<'a>(&self, pending: &'a mut DeferredTransaction<D>) -> Result<&'a mut D::Transaction> {
        let transaction = match pending.open.take() {
            Some(transaction) => transaction,
            None => self.database.begin().await?,
        };
        Ok(pending.open.insert(transaction))
    }
}
