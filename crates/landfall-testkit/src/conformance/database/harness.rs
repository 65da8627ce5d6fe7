//! The harness of the database cases: a migrated database with an effects table, and shared steps.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{
    Admission, Decision, Hold, Lease, OutboxEntry, Parking, RedriveItem, Setback, Settlement, Shard,
};
use landfall_core::{
    Database, DeadLetter, DeadLetterFilter, DeadLetters, Failure, GroupName, Holder, Inbox, Leases, Message, MessageId,
    OutboxQueue, OutboxWriter, Position, RowId, Schema,
};

use super::{AuditRow, DatabaseFixture, Effect};
use crate::conformance::sample::failure;

/// Longer than any case runs.
pub(super) const LONG: Duration = Duration::from_secs(3600);
/// The limit of every wait.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a case waits to show that something does not happen; also the TTL of leases that should expire.
pub(super) const SHORT_WAIT: Duration = Duration::from_millis(250);

/// The database under test.
#[derive(Debug)]
pub struct Harness<F: DatabaseFixture> {
    pub(super) fixture: Arc<F>,
    pub(super) database: F::Database,
}

impl<F: DatabaseFixture> Harness<F> {
    pub(super) async fn new(fixture: F) -> Self {
        let fixture = Arc::new(fixture);
        let database = fixture.open().await;
        Self { fixture, database }.migrated().await
    }

    async fn migrated(self) -> Self {
        self.database.migrate().await.unwrap();
        let mut transaction = self.database.begin().await.unwrap();
        self.fixture.create_effects(&mut transaction).await;
        self.database.commit(transaction).await.unwrap();
        self
    }

    /// Opens the database as another process would.
    pub(super) async fn second(&self) -> F::Database {
        self.fixture.open().await
    }

    /// Enqueues `messages` in one transaction and commits it.
    pub(super) async fn enqueue(&self, messages: &[Message]) {
        let mut transaction = self.database.begin().await.unwrap();
        self.database.enqueue(&mut transaction, messages).await.unwrap();
        self.database.commit(transaction).await.unwrap();
    }

    pub(super) async fn effects(&self) -> Vec<Effect> {
        let mut transaction = self.database.begin().await.unwrap();
        let effects = self.fixture.effects(&mut transaction).await;
        self.database.commit(transaction).await.unwrap();
        effects
    }

    pub(super) async fn audit(&self) -> Vec<AuditRow> {
        let mut transaction = self.database.begin().await.unwrap();
        let rows = self.fixture.audit(&mut transaction).await;
        self.database.commit(transaction).await.unwrap();
        rows
    }

    /// Acquires the lease of every shard for longer than the case runs.
    pub(super) async fn lease_all(&self, holder: &str) -> Vec<Lease> {
        lease_all(&self.database, holder, LONG).await
    }

    /// Returns all due entries.
    pub(super) async fn due(&self, leases: &[Lease]) -> Vec<OutboxEntry> {
        self.database.next(leases, 10_000).await.unwrap()
    }

    pub(super) async fn due_ids(&self, leases: &[Lease]) -> Vec<MessageId> {
        self.due(leases).await.iter().map(|entry| entry.message_id).collect()
    }

    /// Settles the due row of `message`.
    pub(super) async fn settle(&self, leases: &[Lease], message: &Message, decision: Decision) -> Vec<RowId> {
        let due = self.due(leases).await;
        let entry = due.iter().find(|entry| entry.message_id == message.id).expect("the message is not due");
        self.database.settle(leases, &[settlement(entry, decision)]).await.unwrap()
    }

    /// Handles a message as a consumer does whose handler succeeds.
    pub(super) async fn handle(&self, group: &GroupName, message: &Message) -> Admission {
        let mut transaction = self.database.begin().await.unwrap();
        let admission = self.database.admit(&mut transaction, group, message, None).await.unwrap();
        if admission == Admission::Fresh {
            self.fixture.insert_effect(&mut transaction, &message.into()).await;
        }
        self.database.commit(transaction).await.unwrap();
        admission
    }

    /// Parks a message as a consumer does after the third and last attempt.
    pub(super) async fn park(&self, group: &GroupName, message: &Message) {
        let origin = Some(Position { partition: 3, offset: 42 });
        let mut transaction = self.database.begin().await.unwrap();
        let admission = self.database.admit(&mut transaction, group, message, origin).await.unwrap();
        assert_eq!(admission, Admission::Fresh, "only a fresh message can be parked");
        self.database.park(&mut transaction, group, message, origin, Parking::with_key(3, &failure())).await.unwrap();
        self.database.commit(transaction).await.unwrap();
    }

    /// Parks the first of `messages` and admits the others, which are held.
    pub(super) async fn park_with_successors(&self, group: &GroupName, messages: &[Message]) {
        let (first, successors) = messages.split_first().expect("no messages");
        self.park(group, first).await;
        for message in successors {
            assert_eq!(self.handle(group, message).await, Admission::Held);
        }
    }

    /// Handles and returns the next redriven message, if there is one.
    pub(super) async fn drain_one(&self, group: &GroupName) -> Option<RedriveItem> {
        drain_one(&*self.fixture, &self.database, group).await
    }

    /// Handles all redriven messages and returns their ids in order.
    pub(super) async fn drain(&self, group: &GroupName) -> Vec<MessageId> {
        let mut handled = Vec::new();
        while let Some(item) = self.drain_one(group).await {
            handled.push(item.message.id);
        }
        handled
    }

    /// Fails the next redriven message, which parks it again.
    pub(super) async fn fail_one(&self, group: &GroupName) -> RedriveItem {
        self.fail(group, failure()).await
    }

    /// Fails the next redriven message with another error.
    pub(super) async fn fail_with(&self, group: &GroupName, error: &str) -> RedriveItem {
        self.fail(group, Failure { error: error.to_owned(), ..failure() }).await
    }

    async fn fail(&self, group: &GroupName, failure: Failure) -> RedriveItem {
        let mut transaction = self.database.begin().await.unwrap();
        let item =
            self.database.next_redriven(&mut transaction, group, &[]).await.unwrap().expect("no message to handle");
        let setback = setback(&item, &failure, None);
        assert!(self.database.park_redriven(&mut transaction, &item, setback).await.unwrap());
        self.database.commit(transaction).await.unwrap();
        item
    }

    /// Fails the next message to be handled, with a retry after `again`.
    pub(super) async fn fail_for(&self, group: &GroupName, again: Duration) -> RedriveItem {
        let mut transaction = self.database.begin().await.unwrap();
        let item =
            self.database.next_redriven(&mut transaction, group, &[]).await.unwrap().expect("no message to handle");
        let failure = failure();
        self.database.park_redriven(&mut transaction, &item, setback(&item, &failure, Some(again))).await.unwrap();
        self.database.commit(transaction).await.unwrap();
        item
    }

    /// Delays a message as a consumer does after the first attempt, with a retry after `again`.
    pub(super) async fn delay(&self, group: &GroupName, message: &Message, hold: Hold, again: Duration) {
        let origin = Some(Position { partition: 3, offset: 42 });
        let mut transaction = self.database.begin().await.unwrap();
        let admission = self.database.admit(&mut transaction, group, message, origin).await.unwrap();
        assert_eq!(admission, Admission::Fresh, "only a fresh message can be delayed");
        let failure = failure();
        let parking = Parking { attempts: 1, failure: &failure, hold, again: Some(again) };
        self.database.park(&mut transaction, group, message, origin, parking).await.unwrap();
        self.database.commit(transaction).await.unwrap();
    }

    pub(super) async fn letters(&self) -> Vec<DeadLetter> {
        self.database.find(&DeadLetterFilter::default(), 10_000).await.unwrap()
    }

    /// Returns the only dead letter of `message`.
    pub(super) async fn letter(&self, message: &Message) -> DeadLetter {
        let filter = DeadLetterFilter { message_id: Some(message.id), ..Default::default() };
        let mut found = self.database.find(&filter, 10).await.unwrap();
        assert_eq!(found.len(), 1, "the message does not have exactly one dead letter: {found:?}");
        found.remove(0)
    }

    /// Discards `message`, which must be parked.
    pub(super) async fn discard(&self, message: &Message) {
        let filter = DeadLetterFilter { message_id: Some(message.id), ..Default::default() };
        let result = self.database.discard(&filter, "never wanted", "alice").await.unwrap();
        assert_eq!(result.discarded, [self.letter(message).await.id], "the parked message was not discarded");
    }

    pub(super) async fn redrive_all(&self) {
        self.database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    }

    /// Redrives `message`, which must be parked.
    pub(super) async fn redrive(&self, message: &Message) {
        let filter = DeadLetterFilter { message_id: Some(message.id), ..Default::default() };
        let result = self.database.redrive(&filter, "alice").await.unwrap();
        assert_eq!(result.redriven, [self.letter(message).await.id], "the parked message was not redriven");
    }
}

/// A failed attempt of `item`.
pub(super) fn setback<'a>(item: &RedriveItem, failure: &'a Failure, again: Option<Duration>) -> Setback<'a> {
    Setback { attempts: item.attempts + 1, failure, hold: Hold::Key, again }
}

/// Handles and returns the next redriven message on `database`, if there is one.
pub(super) async fn drain_one<F: DatabaseFixture>(
    fixture: &F,
    database: &F::Database,
    group: &GroupName,
) -> Option<RedriveItem> {
    let mut transaction = database.begin().await.unwrap();
    let Some(item) = database.next_redriven(&mut transaction, group, &[]).await.unwrap() else {
        // Committed at once: a dropped transaction is rolled back later and may keep locks until then.
        database.commit(transaction).await.unwrap();
        return None;
    };
    fixture.insert_effect(&mut transaction, &(&item.message).into()).await;
    database.complete_redriven(&mut transaction, &item).await.unwrap();
    database.commit(transaction).await.unwrap();
    Some(item)
}

pub(super) async fn lease_all<D: OutboxQueue + Leases>(database: &D, holder: &str, ttl: Duration) -> Vec<Lease> {
    let mut leases = Vec::new();
    for shard in 0..database.shards() {
        let lease = database.acquire(&Shard(shard).lease_name(), &self::holder(holder), ttl).await.unwrap();
        leases.push(lease.expect("the lease of the shard is not free"));
    }
    leases
}

pub(super) fn holder(name: &str) -> Holder {
    Holder(name.to_owned())
}

pub(super) fn settlement(entry: &OutboxEntry, decision: Decision) -> Settlement {
    Settlement { row: entry.row, shard: entry.shard, decision }
}
