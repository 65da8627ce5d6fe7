//! Buffers for encoded records, used again and again: a fresh one of this size costs a page fault for every 4 KiB.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::batch::MERGE_BYTES;

/// Enough for the publishers that typically wait for one sync.
const KEPT: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    pub(crate) fn take(&self) -> Vec<u8> {
        self.kept().pop().unwrap_or_default()
    }

    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.kept();
        // One huge message must not keep its memory for ever.
        if kept.len() < KEPT && buffer.capacity() <= 2 * MERGE_BYTES {
            kept.push(buffer);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
