//! Buffers for encoded records, used again and again: a fresh one of this size costs a page fault for every 4 KiB.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::batch::{HEADER_BYTES, MERGE_BYTES};

/// Enough for the publishers that typically wait for one sync.
const KEPT: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer with nothing in it but room for the header of a batch.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut buffer = self.kept().pop().unwrap_or_default();
        buffer.resize(HEADER_BYTES, 0);
        buffer
    }

    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.kept();
        // One huge message must not keep its memory for ever.
        if kept.len() < KEPT && (1..=2 * MERGE_BYTES).contains(&buffer.capacity()) {
            kept.push(buffer);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
