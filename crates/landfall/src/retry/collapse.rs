use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

/// Request collapsing: concurrent callers with the same key share one call and its result. Results are not cached; a
/// caller that arrives after the result makes a new call.
///
/// ```
/// use landfall::retry::Collapse;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let prices = Collapse::new();
/// let lookup = || prices.run("book", || async { 42 });
/// assert_eq!(tokio::join!(lookup(), lookup()), (42, 42));
/// # }
/// ```
///
/// The first caller makes the call and the others wait for it. If the first is cancelled or panics, one of the others
/// makes the call instead.
pub struct Collapse<K, T> {
    calls: Mutex<HashMap<K, Arc<OnceCell<T>>>>,
}

impl<K: Hash + Eq + Clone, T: Clone> Collapse<K, T> {
    pub fn new() -> Self {
        Self { calls: Mutex::default() }
    }

    /// Returns the result of `call`, or of the call that is in progress for `key`. To share errors too, make `T` a
    /// `Result`.
    pub async fn run<F: Future<Output = T>>(&self, key: K, call: impl FnOnce() -> F) -> T {
        let caller = Caller::join(self, key);
        let result = caller.cell.get_or_init(call).await.clone();
        // Before the result is returned, so that a later caller makes a call of its own.
        caller.forget();
        result
    }

    /// The number of keys with a call in progress.
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

/// A caller that makes or awaits a call. The last one to leave removes the key, with or without a result.
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

    /// Removes the key if it still refers to this call.
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
        let is_own = calls.get(&self.key).is_some_and(|other| Arc::ptr_eq(other, &cell));
        // The map and this caller: callers join and leave under the same lock, so no other can join now.
        if is_own && Arc::strong_count(&cell) == 2 {
            calls.remove(&self.key);
        }
        // Dropped under the lock, because the next caller to leave counts the references.
        drop(cell);
    }
}
