use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::health::now;

/// Request collapsing: concurrent callers with the same key share one call and its result. Results are not cached; a
/// caller that arrives after the result makes a new call, unless the calls are [debounced](Self::debounce).
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
    calls: Mutex<Calls<K, T>>,
    /// How long a result is shared after its call.
    window: Duration,
}

struct Calls<K, T> {
    by_key: HashMap<K, Arc<OnceCell<T>>>,
    /// Keys whose result is still shared, in the order in which that ends.
    finished: VecDeque<(Instant, K)>,
}

impl<K: Hash + Eq + Clone, T: Clone> Collapse<K, T> {
    pub fn new() -> Self {
        Self::debounce(Duration::ZERO)
    }

    /// Shares a result, also a failure, for `window` after its call: callers that repeat a key within a short time get
    /// the first answer. Their calls do not extend the window.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use landfall::retry::Collapse;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let clicks = Collapse::debounce(Duration::from_secs(60));
    /// assert_eq!(clicks.run("pay/1", || async { "paid" }).await, "paid");
    /// assert_eq!(clicks.run("pay/1", || async { "paid twice" }).await, "paid");
    /// # }
    /// ```
    pub fn debounce(window: Duration) -> Self {
        Self { calls: Mutex::new(Calls { by_key: HashMap::new(), finished: VecDeque::new() }), window }
    }

    /// Returns the result of `call`, or of the call that is in progress for `key`. To share errors too, make `T` a
    /// `Result`.
    pub async fn run<F: Future<Output = T>>(&self, key: K, call: impl FnOnce() -> F) -> T {
        let caller = Caller::join(self, key);
        let mut is_first = false;
        let call = || {
            is_first = true;
            call()
        };
        let result = caller.cell.get_or_init(call).await;
        // Before the result is returned, so that a later caller makes a call of its own.
        caller.finish(is_first);
        result.clone()
    }

    /// The number of keys with a call in progress.
    pub fn under_way(&self) -> usize {
        self.lock().by_key.values().filter(|cell| !cell.initialized()).count()
    }

    fn lock(&self) -> MutexGuard<'_, Calls<K, T>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, T> Calls<K, T> {
    /// Forgets the results whose window has ended.
    fn expire(&mut self, now: Instant) {
        while let Some((_, key)) = self.finished.pop_front_if(|(end, _)| *end <= now) {
            self.by_key.remove(&key);
        }
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

/// A caller that makes or awaits a call. The last one to leave removes the key of a call without a result.
struct Caller<'a, K: Hash + Eq + Clone, T: Clone> {
    collapse: &'a Collapse<K, T>,
    key: K,
    cell: Arc<OnceCell<T>>,
}

impl<'a, K: Hash + Eq + Clone, T: Clone> Caller<'a, K, T> {
    fn join(collapse: &'a Collapse<K, T>, key: K) -> Self {
        let mut calls = collapse.lock();
        calls.expire(now());
        let cell = calls.by_key.entry(key.clone()).or_default().clone();
        drop(calls);
        Self { collapse, key, cell }
    }

    /// Begins the window of the result, or removes the key if there is no window.
    fn finish(&self, is_first: bool) {
        let window = self.collapse.window;
        let mut calls = self.collapse.lock();
        let is_own = calls.by_key.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        if is_own && window.is_zero() {
            calls.by_key.remove(&self.key);
        } else if is_own && is_first {
            let now = now();
            let end = now.checked_add(window).unwrap_or(now + Duration::from_secs(365 * 86_400));
            calls.finished.push_back((end, self.key.clone()));
        }
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Drop for Caller<'_, K, T> {
    fn drop(&mut self) {
        let mut calls = self.collapse.lock();
        let cell = std::mem::take(&mut self.cell);
        let is_own = calls.by_key.get(&self.key).is_some_and(|other| Arc::ptr_eq(other, &cell));
        // The map and this caller: callers join and leave under the same lock, so no other can join now.
        if is_own && !cell.initialized() && Arc::strong_count(&cell) == 2 {
            calls.by_key.remove(&self.key);
        }
        // Dropped under the lock, because the next caller to leave counts the references.
        drop(cell);
    }
}
