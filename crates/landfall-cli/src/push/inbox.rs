//! An inbox whose transaction begins after the call.
//!
//! A handler's writes and the inbox row belong in one transaction. A POST is no write of ours: a transaction around it
//! would protect nothing and stay open for as long as a stranger takes to answer; on SQLite nobody else could write
//! meanwhile. So the message is looked up first, then posted, and only then is its row written.
//!
//! Nothing is lost by it: a crash in between brings the message again, as a crash before the commit always does.

use landfall::adapter::{Admission, Arrival, Origin, Parking, RedriveItem, Setback};
use landfall::{Database, DeadLetterId, Error, ErrorKind, GroupName, Inbox, Message, OutboxWriter, Result};

#[derive(Clone)]
pub(super) struct AfterCall<D> {
    database: D,
    /// Whether a redriven letter stays locked during its call. Where one writer locks out all others it must not: there
    /// is one worker then, and the letter's state is compared when it is done.
    locks: bool,
}

/// What is to be written when the call is over.
pub(super) struct Pending<D: Inbox> {
    admitted: Vec<(GroupName, Message, Origin)>,
    open: Option<D::Transaction>,
}

impl<D: Inbox> AfterCall<D> {
    pub(super) fn new(database: D, locks: bool) -> Self {
        Self { database, locks }
    }
}

impl<D: Inbox> Database for AfterCall<D> {
    type Connection = Pending<D>;
    type Transaction = Box<Pending<D>>;

    async fn begin(&self) -> Result<Box<Pending<D>>> {
        Ok(Box::new(Pending { admitted: Vec::new(), open: None }))
    }

    async fn commit(&self, pending: Box<Pending<D>>) -> Result<()> {
        let Pending { admitted, open } = *pending;
        if let Some(open) = open {
            return self.database.commit(open).await;
        }
        if admitted.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        let mut changes_something = false;
        for (group, message, origin) in &admitted {
            // Whatever the answer is now, it is true: a copy that was faster is a duplicate, and a key that was held
            // meanwhile has it queued, to be posted once more.
            let admission = self.database.admit(&mut transaction, group, message, *origin).await?;
            changes_something |= admission != Admission::Duplicate;
        }
        match changes_something {
            true => self.database.commit(transaction).await,
            false => self.database.flush(transaction).await,
        }
    }

    async fn flush(&self, pending: Box<Pending<D>>) -> Result<()> {
        match pending.open {
            Some(open) => self.database.flush(open).await,
            // What was seen was flushed where it was seen.
            None => Ok(()),
        }
    }
}

impl<D: Inbox> Inbox for AfterCall<D> {
    async fn admit(
        &self,
        pending: &mut Pending<D>,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<Admission> {
        let mut transaction = self.database.begin().await?;
        let admission = self.database.admit(&mut transaction, group, message, origin).await?;
        match admission {
            Admission::Fresh => pending.admitted.push((group.clone(), message.clone(), origin)),
            // There is no call to wait for.
            Admission::Held => self.database.commit_seen(transaction).await?,
            Admission::Duplicate => self.database.flush(transaction).await?,
        }
        Ok(admission)
    }

    async fn admit_batch(
        &self,
        pending: &mut Pending<D>,
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
        pending: &mut Pending<D>,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> Result<DeadLetterId> {
        let mut transaction = self.database.begin().await?;
        if self.database.admit(&mut transaction, group, message, origin).await? != Admission::Fresh {
            let sentence = format!("message {} was settled elsewhere a moment ago", message.id);
            return Err(Error::new(ErrorKind::Unavailable, sentence));
        }
        let letter = self.database.park(&mut transaction, group, message, origin, parking).await?;
        pending.open = Some(transaction);
        Ok(letter)
    }

    async fn next_redriven(
        &self,
        pending: &mut Pending<D>,
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

    async fn complete_redriven(&self, pending: &mut Pending<D>, item: &RedriveItem) -> Result<()> {
        self.database.complete_redriven(self.open(pending).await?, item).await
    }

    async fn park_redriven(&self, pending: &mut Pending<D>, item: &RedriveItem, setback: Setback<'_>) -> Result<bool> {
        self.database.park_redriven(self.open(pending).await?, item, setback).await
    }
}

/// What is parked may be told to a topic in the transaction that parks it.
impl<D: Inbox + OutboxWriter> OutboxWriter for AfterCall<D> {
    async fn enqueue(&self, pending: &mut Pending<D>, messages: &[Message]) -> Result<()> {
        self.database.enqueue(self.open(pending).await?, messages).await
    }

    fn wake(&self) {
        self.database.wake();
    }
}

impl<D: Inbox> AfterCall<D> {
    /// The transaction that is open, or one that begins now.
    async fn open<'a>(&self, pending: &'a mut Pending<D>) -> Result<&'a mut D::Transaction> {
        let transaction = match pending.open.take() {
            Some(transaction) => transaction,
            None => self.database.begin().await?,
        };
        Ok(pending.open.insert(transaction))
    }
}
