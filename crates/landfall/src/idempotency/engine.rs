//! The plain call: join, claim, run, settle.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::idempotency::{
    Body, Fingerprint, IdempotencyRecords, Identity, OnUnknown, RecordId, Snapshot, Terms,
};
use landfall_core::{ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::attempt::{Attempt, Attempting};
use super::counters::{Counted, count, register};
use super::error::Error;
use super::flights::{Flight, Flights, Followed, Joined};

/// Runs work once per [`Identity`], with records in a store of their own.
///
/// The work runs in a spawned task: a caller that goes away does not stop it. The lease is renewed while it runs. If
/// the work writes only to one database with Landfall's tables, use [`InTransaction`](super::InTransaction), which
/// needs no lease.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::idempotency::{
///     FingerprintBuilder, Idempotency, Identity, MemoryRecords, OnUnknown, Policy, Scope, Work,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let payments = Idempotency::new(Arc::new(MemoryRecords::default()));
/// let policy = Policy::new(OnUnknown::Uncertain);
/// let key = Identity::new(Scope::principal("tenant-7")?, "payment", "order-42")?;
/// let request = FingerprintBuilder::new("payment").part("10 EUR").finish();
/// for is_repeat in [false, true] {
///     let paid = payments
///         .run(&key, &request, &policy, |_| async { Work::<_, std::io::Error>::Done("receipt 1".to_owned()) })
///         .await?;
///     assert_eq!((paid.value.as_str(), paid.is_replayed), ("receipt 1", is_repeat));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Idempotency {
    records: Arc<dyn IdempotencyRecords>,
    flights: Arc<Flights>,
    max_waiters: usize,
    tasks: TaskTracker,
}

/// What became of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work<T, E> {
    /// It is done, and every repeat gets this value.
    Done(T),
    /// It failed, and nothing happened that a repeat could double. The key is free again.
    NothingDone(E),
    /// It failed, and may have been done. The policy decides what a repeat does.
    Unknown(E),
}

/// The value of work that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    pub value: T,
    /// Whether an earlier or concurrent call did the work.
    pub is_replayed: bool,
}

impl<T> Answer<T> {
    /// Replaces the value, such as by the response that is made of it.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { value: change(self.value), is_replayed: self.is_replayed }
    }
}

/// How one kind of work is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The lease of an attempt, and what follows when its outcome is unknown.
    pub terms: Terms,
    /// How long a call waits for another attempt with the same key.
    pub wait: Duration,
}

impl Policy {
    /// A lease of 30 seconds, at most ten minutes, and two seconds of waiting. Whether unknown work is run again has no
    /// default: only its author knows whether it tolerates that.
    pub fn new(on_unknown: OnUnknown) -> Self {
        Self { terms: Terms::new(on_unknown), wait: Duration::from_secs(2) }
    }

    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease;
        self
    }

    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let Terms { lease, ceiling, .. } = self.terms;
        if lease < Duration::from_millis(10) || ceiling < lease {
            let text = format!("the lease {lease:?} must be at least 10 ms and at most the ceiling {ceiling:?}");
            return Err(landfall_core::Error::invalid(text));
        }
        Ok(())
    }
}

/// The longest time that a caller is told to wait before it tries again.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

pub(super) fn in_flight<E>(remaining: Duration) -> Error<E> {
    Error::InFlight { retry_after: remaining.clamp(Duration::from_secs(1), LONGEST_RETRY_AFTER) }
}

/// How a value is stored and read again.
pub(super) struct Codec<T> {
    pub(super) encode: fn(&T) -> Result<Snapshot>,
    pub(super) decode: fn(Snapshot) -> Result<T, Undecoded>,
}

pub(super) enum Undecoded {
    NotKept { status: u16, is_expired: bool },
    Invalid(landfall_core::Error),
}

impl<E> From<Undecoded> for Error<E> {
    fn from(undecoded: Undecoded) -> Self {
        match undecoded {
            Undecoded::NotKept { status, is_expired } => Self::NotKept { status, is_expired },
            Undecoded::Invalid(error) => Self::Value(error),
        }
    }
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    pub(super) fn json() -> Self {
        let encode = |value: &T| {
            let bytes = serde_json::to_vec(value).map_err(|error| {
                landfall_core::Error::invalid("the value of idempotent work cannot be stored as JSON")
                    .with_source(error)
            })?;
            Ok(Snapshot::from_bytes(bytes))
        };
        let decode = |answer: Snapshot| match answer.body {
            Body::Kept(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let text = "the stored value of idempotent work has another shape than this build expects";
                Undecoded::Invalid(landfall_core::Error::new(ErrorKind::Corrupt, text).with_source(error))
            }),
            Body::NotKept => Err(Undecoded::NotKept { status: answer.status, is_expired: false }),
            Body::Expired => Err(Undecoded::NotKept { status: answer.status, is_expired: true }),
        };
        Self { encode, decode }
    }
}

impl Codec<Snapshot> {
    pub(super) fn snapshot() -> Self {
        Self { encode: |answer| Ok(answer.clone()), decode: Ok }
    }
}

impl Idempotency {
    /// Keeps records in `records`, such as a database adapter. Use one `Idempotency` per process and store: concurrent
    /// callers with one key share one claim.
    pub fn new(records: Arc<dyn IdempotencyRecords>) -> Self {
        Self { records, flights: Arc::default(), max_waiters: 1000, tasks: TaskTracker::new() }
    }

    /// Limits the callers of this process that wait for one key; further ones get
    /// [`Error::InFlight`](super::Error::InFlight) at once. 1000 by default.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Runs `work` unless it was done before, and returns its value, which is stored as JSON.
    ///
    /// A token's identity works too ([`Token::identity`](super::Token::identity)): then the token is used up only if
    /// the work is done.
    pub async fn run<T, E, F, Fut>(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        policy: &Policy,
        work: F,
    ) -> Result<Answer<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Send + 'static,
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Work<T, E>> + Send + 'static,
    {
        self.execute(identity, fingerprint, policy, Codec::json(), work).await
    }

    /// Does the same for work whose value is an answer with status and headers. A body that is not kept is returned as
    /// such, and is no error.
    pub async fn run_snapshot<E, F, Fut>(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        policy: &Policy,
        work: F,
    ) -> Result<Answer<Snapshot>, Error<E>>
    where
        E: Send + 'static,
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Work<Snapshot, E>> + Send + 'static,
    {
        self.execute(identity, fingerprint, policy, Codec::snapshot(), work).await
    }

    /// Waits for the work that has begun, at shutdown. Later calls still run.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    pub(super) async fn execute<T, E, F, Fut>(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        policy: &Policy,
        codec: Codec<T>,
        work: F,
    ) -> Result<Answer<T>, Error<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce(Attempt) -> Fut + Send + 'static,
        Fut: Future<Output = Work<T, E>> + Send + 'static,
    {
        policy.check()?;
        register(identity.business_type());
        let deadline = Instant::now() + policy.wait;
        let joining =
            Joining { flights: &self.flights, max_waiters: self.max_waiters, identity, fingerprint, deadline };
        let flight = match joining.join(policy.terms.lease).await? {
            Ok(flight) => flight,
            Err(answer) => return Ok(Answer { value: (codec.decode)(answer)?, is_replayed: true }),
        };
        let attempting = Attempting {
            records: self.records.clone(),
            identity: identity.clone(),
            fingerprint: *fingerprint,
            policy: policy.clone(),
            deadline,
            codec,
        };
        let (sender, receiver) = oneshot::channel();
        self.tasks.spawn(async move {
            let mut sender = sender;
            let result = attempting.run(flight, &mut sender, work).await;
            let _ = sender.send(result);
        });
        receiver.await.unwrap_or(Err(Error::Aborted))
    }
}

impl std::fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idempotency").field("max_waiters", &self.max_waiters).finish_non_exhaustive()
    }
}

/// A caller that joins the others of this process.
pub(super) struct Joining<'a> {
    pub(super) flights: &'a Arc<Flights>,
    pub(super) max_waiters: usize,
    pub(super) identity: &'a Identity,
    pub(super) fingerprint: &'a Fingerprint,
    pub(super) deadline: Instant,
}

impl Joining<'_> {
    /// Returns the lead, or the answer of the caller that had it.
    pub(super) async fn join<E>(self, lease: Duration) -> Result<Result<Flight, Snapshot>, Error<E>> {
        let (id, business_type): (RecordId, &str) = (self.identity.id(), self.identity.business_type());
        loop {
            match self.flights.join(id, self.fingerprint, self.max_waiters) {
                Joined::Lead(flight) => return Ok(Ok(flight)),
                Joined::Mismatch => {
                    count(Counted::Mismatch, business_type);
                    return Err(Error::Mismatch);
                }
                Joined::Full => {
                    count(Counted::Conflict, business_type);
                    return Err(in_flight(lease));
                }
                Joined::Follow(follower) => match follower.wait(self.deadline).await {
                    Followed::Done(answer) => {
                        count(Counted::Waited, business_type);
                        return Ok(Err(answer));
                    }
                    Followed::Over => {}
                    Followed::TimedOut => {
                        count(Counted::Conflict, business_type);
                        return Err(in_flight(lease));
                    }
                },
            }
        }
    }
}
