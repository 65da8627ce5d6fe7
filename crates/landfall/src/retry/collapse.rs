use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

/// Many who ask for the same at the same time share one call and its answer. Whoever asks when it has been answered
/// begins a new one: nothing is remembered.
///
/// The first to come makes the call; the others wait for it. If the first is cancelled or panics, one of the others
/// makes the call instead, so that nobody is left waiting.
pub struct Collapse<K, T> {
    calls: Mutex<HashMap<K, Arc<OnceCell<T>>>>,
}

impl<K: Hash + Eq + Clone, T: Clone> Collapse<K, T> {
    pub fn new() -> Self {
        Self { calls: Mutex::default() }
    }

    /// The answer of `call`, or of whoever is calling for `key` right now. An error is an answer too: make `T` a
    /// `Result` to share it.
    pub async fn run<F: Future<Output = T>>(&self, key: K, call: impl FnOnce() -> F) -> T {
        let caller = Caller::join(self, key);
        let answer = caller.cell.get_or_init(call).await.clone();
        // Before anybody hears of it, so that whoever asks afterwards gets an answer of their own.
        caller.forget();
        answer
    }

    /// Keys that somebody is calling for.
    pub fn under_way(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<OnceCell<T>>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Default for Collapse<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, T> fmt::Debug for Collapse<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collapse").finish_non_exhaustive()
    }
}

/// Somebody who makes or awaits a call. The last one to leave takes the key along, answered or not.
struct Caller<'a, K: Hash + Eq + Clone, T: Clone> {
    collapse: &'a Collapse<K, T>,
    key: K,
    cell: Arc<OnceCell<T>>,
}

impl<'a, K: Hash + Eq + Clone, T: Clone> Caller<'a, K, T> {
    fn join(collapse: &'a Collapse<K, T>, key: K) -> Self {
        let cell = collapse.lock().entry(key.clone()).or_default().clone();
        Self { collapse, key, cell }
    }

    /// Takes the key out of the map if it still stands for this call.
    fn forget(&self) {
        let mut calls = self.collapse.lock();
        if calls.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell)) {
            calls.remove(&self.key);
        }
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Drop for Caller<'_, K, T> {
    fn drop(&mut self) {
        let mut calls = self.collapse.lock();
        let cell = std::mem::take(&mut self.cell);
        let mine = calls.get(&self.key).is_some_and(|other| Arc::ptr_eq(other, &cell));
        // The map and this one: callers join and leave under the same lock, so nobody else is coming.
        if mine && Arc::strong_count(&cell) == 2 {
            calls.remove(&self.key);
        }
        // Under the lock, for whoever counts next.
        drop(cell);
    }
}
