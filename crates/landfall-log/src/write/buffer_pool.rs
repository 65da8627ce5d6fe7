//! A pool of buffers for encoded records: a new buffer of this size costs a page fault for every 4 KiB.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::batch::{HEADER_BYTES, MERGE_BYTES};

/// Enough for the publishers that typically wait for one sync.
const MAX_POOLED: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Returns a buffer that holds only reserved space for the batch header.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut buffer = self.pooled().pop().unwrap_or_default();
        buffer.resize(HEADER_BYTES, 0);
        buffer
    }

    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut pooled = self.pooled();
        // One huge message must not pin its memory forever.
        if pooled.len() < MAX_POOLED && (1..=2 * MERGE_BYTES).contains(&buffer.capacity()) {
            pooled.push(buffer);
        }
    }

    fn pooled(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
