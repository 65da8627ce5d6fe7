//! Time windows: a repeat within the window is suppressed.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::idempotency::{
    Claim, FingerprintBuilder, IdempotencyRecords, Identity, OnUnknown, Outcome, Scope, Settled, Terms,
};
use tokio_util::task::TaskTracker;

use super::attempt::refusal;
use super::counters::{Counted, count, register};
use super::error::Error;

/// Runs work at most once per window, such as one text message a minute.
///
/// The window begins with the claim, one conditional write by the store's clock, and is not extended by repeats. Work
/// that fails reopens it. Work that crashes or panics does not: the next call runs after the window.
///
/// Claim and work run in a spawned task: a caller that goes away does not stop them. Otherwise it could leave a window
/// closed, and nothing done.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use landfall::idempotency::{MemoryRecords, Scope, Windowed, Windows};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let windows = Windows::new(Arc::new(MemoryRecords::default()));
/// let minute = Duration::from_secs(60);
/// let send = || windows.run(Scope::Global, "sms", "+49 170 1", minute, async || Ok::<_, std::io::Error>(()));
/// assert!(matches!(send().await?, Windowed::Ran(())));
/// assert!(matches!(send().await?, Windowed::Suppressed { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Windows {
    records: Arc<dyn IdempotencyRecords>,
    tasks: TaskTracker,
}

/// What became of a call in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Windowed<T> {
    Ran(T),
    /// The work ran within the window before; the window ends after this time.
    Suppressed {
        remaining: Duration,
    },
}

impl Windows {
    pub fn new(records: Arc<dyn IdempotencyRecords>) -> Self {
        Self { records, tasks: TaskTracker::new() }
    }

    /// Runs `work` unless it ran within the last `length` under the same scope, business type and key.
    ///
    /// Returns [`Error::Aborted`] if the work panics.
    pub async fn run<T, E, F, Fut>(
        &self,
        scope: Scope,
        business_type: &str,
        key: &str,
        length: Duration,
        work: F,
    ) -> Result<Windowed<T>, Error<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let identity = Identity::window(scope, business_type, key)?;
        register(business_type);
        let running = self.tasks.spawn(once(self.records.clone(), identity, length, work));
        running.await.unwrap_or(Err(Error::Aborted))
    }

    /// Waits for the work that has begun, at shutdown. Later calls still run.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

/// Claims the window, runs the work, and reopens the window if the work fails.
async fn once<T, E, Fut: Future<Output = Result<T, E>>>(
    records: Arc<dyn IdempotencyRecords>,
    identity: Identity,
    length: Duration,
    work: impl FnOnce() -> Fut,
) -> Result<Windowed<T>, Error<E>> {
    let business_type = identity.business_type();
    let terms = Terms { lease: length, ceiling: length, on_unknown: OnUnknown::Rerun };
    let claim = records.claim_record(&identity, &FingerprintBuilder::empty(), &terms).await;
    let claim = claim.inspect_err(|_| count(Counted::StoreError, business_type))?;
    let epoch = match claim {
        Claim::Claimed { epoch } => epoch,
        Claim::InFlight { remaining } => {
            count(Counted::Replayed, business_type);
            return Ok(Windowed::Suppressed { remaining });
        }
        refused => {
            let (counted, error) = refusal(refused);
            count(counted, business_type);
            return Err(error);
        }
    };
    match work().await {
        Ok(value) => {
            count(Counted::Executed, business_type);
            Ok(Windowed::Ran(value))
        }
        Err(error) => {
            match records.settle_record(&identity, epoch, &Outcome::NothingDone).await {
                Ok(Settled::Recorded | Settled::Lost(_)) => {}
                Err(error) => tracing::warn!(%error, %identity, "window of failed work not reopened"),
            }
            Err(Error::Work(error))
        }
    }
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windows").finish_non_exhaustive()
    }
}
