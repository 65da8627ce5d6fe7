//! The outbox as the relay uses it. `outbox_read.rs` reads, `outbox_settle.rs` settles, `cursor.rs` is what they know in
//! between, and `migrations/` has the statements as functions.
//!
//! Rows are never changed: the relay reads what is visible now and was not visible when it looked last, and settling
//! says how far it has come. Order within a key comes from one relay per shard, which settling enforces by locking and
//! comparing the leases in the same transaction.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Database, Lease, Message, OutboxEntry, OutboxQueue, OutboxWriter, Result, RowId, Settlement};

use tokio::sync::{Mutex, MutexGuard};

use crate::Postgres;
use crate::cursor::{Cursor, Held};

/// As in the definition of the column `shard`.
const SHARDS: u16 = 16;

#[async_trait]
impl OutboxQueue for Postgres {
    async fn append(&self, messages: &[Message]) -> Result<()> {
        let transaction = self.begin().await?;
        self.enqueue_and_commit(transaction, messages).await?;
        self.wake();
        Ok(())
    }

    fn shards(&self) -> u16 {
        SHARDS
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>> {
        let held = Held::of(leases);
        if held.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let mut cursor = InUse::of(&self.inner.cursor).await;
        self.follow(&mut cursor, held).await?;
        let batch = self.read(&mut cursor, limit).await?;
        cursor.keep();
        Ok(batch)
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let mut cursor = InUse::of(&self.inner.cursor).await;
        let settled = self.settle_all(&mut cursor, leases, settlements).await?;
        cursor.keep();
        if !settled.is_empty() {
            self.rotate_soon(settled.len());
        }
        Ok(settled)
    }

    async fn wait(&self, at_most: Duration) {
        self.inner.signals.wait(at_most).await;
    }
}

/// The cursor while it is worked on. After a failure, or when whoever waits for it has gone, nobody knows what has happened;
/// the table does.
struct InUse<'a> {
    cursor: MutexGuard<'a, Cursor>,
    is_known: bool,
}

impl<'a> InUse<'a> {
    async fn of(cursor: &'a Mutex<Cursor>) -> Self {
        Self { cursor: cursor.lock().await, is_known: false }
    }

    /// It was done.
    fn keep(mut self) {
        self.is_known = true;
    }
}

impl Deref for InUse<'_> {
    type Target = Cursor;

    fn deref(&self) -> &Cursor {
        &self.cursor
    }
}

impl DerefMut for InUse<'_> {
    fn deref_mut(&mut self) -> &mut Cursor {
        &mut self.cursor
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.cursor.forget();
        }
    }
}
