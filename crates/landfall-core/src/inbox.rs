//! The port of the consumer's database: one transaction holds the inbox row, the handler's writes and nothing else.

use std::time::Duration;

use crate::{Arrival, Database, DeadLetterId, Failure, GroupName, Message, MessageId, Position, Result};

/// The consumer's side of a database. Every method works inside the transaction it is given; nothing has happened
/// until that commits.
///
/// A message id is in the inbox from the moment the group has taken charge of it: either its effect happened in the
/// same transaction, or it stands in the dead letters. That is what makes a duplicate harmless in both cases.
pub trait Inbox: Database {
    /// Takes charge of `message` for `group`: inserts its id first, and so makes a concurrent copy wait for this
    /// transaction instead of racing it.
    ///
    /// * `Fresh`: run the handler, then commit.
    /// * `Duplicate`: it was taken charge of before; there is nothing to do.
    /// * `Held`: its key waits behind a dead letter; it was queued there in this transaction. Commit.
    ///
    /// A message whose mode is not deduplicated leaves no inbox row and is never a `Duplicate`.
    fn admit(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> impl Future<Output = Result<Admission>> + Send;

    /// The same for several messages in one transaction: one answer each, in their order, exactly as if they had been
    /// admitted one after the other. What is `Held` is queued in the order given. The inbox rows are one statement,
    /// however many messages there are.
    fn admit_batch(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> impl Future<Output = Result<Vec<Admission>>> + Send;

    /// After `admit` said `Fresh` in this transaction: makes the message a dead letter instead of handling it. From
    /// the commit on, later messages of its topic and key are `Held`, unless `parking` says otherwise. With a time in
    /// `parking` it is not for a person but for [`Inbox::next_redriven`], once that time has passed.
    fn park(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> impl Future<Output = Result<DeadLetterId>> + Send;

    /// Locks and returns the next dead letter of `group` that is to be handled now: one whose delay has passed, one a
    /// person redrove, or one that waited behind another which is done. Per topic and key the oldest first, and never
    /// one whose predecessor is still open or being handled elsewhere. `None` when there is nothing to do.
    ///
    /// `resting` are passed over: they failed a moment ago and the caller wants to wait before it tries them again.
    /// What is behind them waits with them.
    fn next_redriven(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> impl Future<Output = Result<Option<RedriveItem>>> + Send;

    /// The handler dealt with it in this transaction: done. The last one of its key lets live traffic through again.
    fn complete_redriven(
        &self,
        connection: &mut Self::Connection,
        item: &RedriveItem,
    ) -> impl Future<Output = Result<()>> + Send;

    /// It failed again: parked or delayed once more, with its key behind it. Does nothing, and answers with `false`, if it
    /// is no longer to be handled: somebody else who was handed it was faster.
    fn park_redriven(
        &self,
        connection: &mut Self::Connection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> impl Future<Output = Result<bool>> + Send;
}

/// What the inbox has, for whoever wants to know before a transaction.
pub trait InboxView: Inbox {
    /// Those of `ids` that `group` has taken charge of, as far as that is committed and on the disk. Reads, and locks
    /// nothing.
    fn handled(&self, group: &GroupName, ids: &[MessageId]) -> impl Future<Output = Result<Vec<MessageId>>> + Send;
}

/// Why a message becomes a dead letter, and who waits for it.
#[derive(Debug, Clone, Copy)]
pub struct Parking<'a> {
    pub attempts: u32,
    pub failure: &'a Failure,
    pub hold: Hold,
    /// The time after which it is tried again by itself; without one it waits for a person.
    pub again: Option<Duration>,
}

impl<'a> Parking<'a> {
    /// The usual one: its key waits for it, and it for a person.
    pub fn with_key(attempts: u32, failure: &'a Failure) -> Self {
        Self { attempts, failure, hold: Hold::Key, again: None }
    }
}

/// What a dead letter says of the try that failed.
#[derive(Debug, Clone, Copy)]
pub struct Setback<'a> {
    /// All failed tries, with this one.
    pub attempts: u32,
    pub failure: &'a Failure,
    /// As in [`Parking`]; one that held nothing before holds nothing now. A key that it lets go passes on to the next.
    pub hold: Hold,
    pub again: Option<Duration>,
}

/// What waits for a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Its key.
    Key,
    /// Nothing: there is no order to keep, or it is out of order itself.
    Nothing,
}

/// Where a delivery came from; kept with a dead letter.
pub type Origin = Option<Position>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Fresh,
    Duplicate,
    Held,
}

/// A dead letter on its way back through the handler.
#[derive(Debug, Clone)]
pub struct RedriveItem {
    pub id: DeadLetterId,
    pub message: Message,
    /// Where the broker had it.
    pub origin: Origin,
    /// Failed tries before this one.
    pub attempts: u32,
    /// How often a person redrove it.
    pub redrives: u32,
}
