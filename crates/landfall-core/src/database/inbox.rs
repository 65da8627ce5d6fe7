//! The consumer's database port: one transaction contains the inbox row and the handler's writes.

use std::time::Duration;

use crate::adapter::Arrival;
use crate::{Database, DeadLetterId, Deliveries, Failure, GroupName, Message, MessageId, Position, Result};

/// The consumer's side of a database. Every method works inside the caller's transaction and takes effect when that
/// commits.
///
/// A message id is in the inbox from its admission: either its effect happened in the same transaction, or the message
/// is a dead letter. A duplicate is harmless in both cases.
pub trait Inbox: Database + Deliveries {
    /// Admits `message` for `group`. The id is inserted first, so a concurrent duplicate waits for this transaction.
    ///
    /// * `Fresh`: run the handler, then commit.
    /// * `Duplicate`: it was admitted before; there is nothing to do.
    /// * `Held`: its key waits behind a dead letter, and it was queued there in this transaction. Commit.
    ///
    /// A message whose mode is not deduplicated leaves no inbox row and is never a `Duplicate`.
    fn admit(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> impl Future<Output = Result<Admission>> + Send;

    /// Exempts the inbox row of `id`, which `admit` inserted in this transaction, from retention.
    fn keep_forever(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        id: MessageId,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Admits several messages in one transaction, with the same results as one after the other. `Held` messages are
    /// queued in the given order. The inbox rows are a single statement.
    fn admit_batch(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> impl Future<Output = Result<Vec<Admission>>> + Send;

    /// Parks a message that `admit` reported as `Fresh` in this transaction. After the commit, later messages of its
    /// topic and key are `Held`, unless `parking` says otherwise. With a delay in `parking`, [`Inbox::next_redriven`]
    /// returns it when due, without a person.
    fn park(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> impl Future<Output = Result<DeadLetterId>> + Send;

    /// Locks and returns the next dead letter of `group` to handle: one whose delay has passed, one that was redriven,
    /// or one whose predecessor is done. Oldest first per topic and key; never one whose predecessor is open or being
    /// handled elsewhere. Returns `None` if there is none.
    ///
    /// Skips `resting`, which failed a moment ago and are in the caller's backoff. Their successors wait with them.
    fn next_redriven(
        &self,
        connection: &mut Self::Connection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> impl Future<Output = Result<Option<RedriveItem>>> + Send;

    /// Marks the letter as done; the handler succeeded in this transaction. The last one of its key releases the key.
    fn complete_redriven(
        &self,
        connection: &mut Self::Connection,
        item: &RedriveItem,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Parks or delays the letter again after another failure; its key stays held. Returns `false` and changes nothing
    /// if another worker has handled it meanwhile.
    fn park_redriven(
        &self,
        connection: &mut Self::Connection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> impl Future<Output = Result<bool>> + Send;
}

/// Reads the inbox before a transaction, for a dedup cache.
pub trait InboxView: Inbox {
    /// Returns the `ids` that `group` has admitted, as far as that is committed and on disk. Takes no locks.
    fn handled(&self, group: &GroupName, ids: &[MessageId]) -> impl Future<Output = Result<Vec<MessageId>>> + Send;
}

/// Why a message becomes a dead letter, and what it holds.
#[derive(Debug, Clone, Copy)]
pub struct Parking<'a> {
    pub attempts: u32,
    pub failure: &'a Failure,
    pub hold: Hold,
    /// The delay after which it is retried automatically; without one it waits for a person.
    pub again: Option<Duration>,
}

impl<'a> Parking<'a> {
    /// Parks for a person and holds the key.
    pub fn with_key(attempts: u32, failure: &'a Failure) -> Self {
        Self { attempts, failure, hold: Hold::Key, again: None }
    }
}

/// Another failed attempt of a dead letter.
#[derive(Debug, Clone, Copy)]
pub struct Setback<'a> {
    /// Failed attempts, including this one.
    pub attempts: u32,
    pub failure: &'a Failure,
    /// As in [`Parking`]. A letter that held nothing before holds nothing now. A released key passes to the next
    /// letter.
    pub hold: Hold,
    pub again: Option<Duration>,
}

/// What a dead letter holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Later messages of its key.
    Key,
    /// Nothing: there is no order to keep, or the message is out of order itself.
    Nothing,
}

/// The broker position of a delivery; stored with a dead letter.
pub type Origin = Option<Position>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Fresh,
    Duplicate,
    Held,
}

/// A dead letter that is handled again.
#[derive(Debug, Clone)]
pub struct RedriveItem {
    pub id: DeadLetterId,
    pub message: Message,
    /// Its position in the broker.
    pub origin: Origin,
    /// Failed attempts so far.
    pub attempts: u32,
    /// How often a person redrove it.
    pub redrives: u32,
}
