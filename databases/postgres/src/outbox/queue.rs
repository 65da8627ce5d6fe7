//! The outbox for relays that keep order.
//!
//! Order within a key comes from one relay per shard. Settling enforces it by locking and comparing the leases in the
//! same transaction.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::adapter::{Lease, OutboxEntry, Settlement};
use landfall_core::{Database, Message, OutboxQueue, OutboxWriter, Result, RowId};
use tokio::sync::{Mutex, MutexGuard};

use super::window::{Cursor, ShardLease};
use crate::Postgres;

/// As in the SQL function `shard_of`.
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
        let leases = ShardLease::from_leases(leases);
        if leases.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let mut cursor = CursorGuard::lock(&self.inner.cursor).await;
        self.load(&mut cursor, leases).await?;
        let batch = match self.is_still_quiet(&mut cursor).await? {
            true => Vec::new(),
            false => self.next_batch(&mut cursor, limit).await?,
        };
        cursor.keep();
        if batch.is_empty() {
            self.rotate_if_quiet();
        }
        Ok(batch)
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let mut cursor = CursorGuard::lock(&self.inner.cursor).await;
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

/// The cursor during a call. Resets it unless the call succeeds: after an error or a cancellation, only the progress
/// table says what has happened.
struct CursorGuard<'a> {
    cursor: MutexGuard<'a, Cursor>,
    is_valid: bool,
}

impl<'a> CursorGuard<'a> {
    async fn lock(cursor: &'a Mutex<Cursor>) -> Self {
        Self { cursor: cursor.lock().await, is_valid: false }
    }

    /// Keeps the cursor's state: the call succeeded.
    fn keep(mut self) {
        self.is_valid = true;
    }
}

impl Deref for CursorGuard<'_> {
    type Target = Cursor;

    fn deref(&self) -> &Cursor {
        &self.cursor
    }
}

impl DerefMut for CursorGuard<'_> {
    fn deref_mut(&mut self) -> &mut Cursor {
        &mut self.cursor
    }
}

impl Drop for CursorGuard<'_> {
    fn drop(&mut self) {
        if !self.is_valid {
            self.cursor.reset();
        }
    }
}
