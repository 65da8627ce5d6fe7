//! Half messages: the message waits at a coordinator for the verdict on a local transaction (P7, K1).
//!
//! Use them if the message cannot be in the database of the change: another store, another team, no outbox table. If it
//! can, use the [outbox](crate::produce), which needs one write and no question.
//!
//! ```text
//!   prepare ─▶ BEGIN, barrier row, business change, COMMIT ─▶ commit
//!                  │ error: ROLLBACK ─▶ rollback
//!                  └ crash, lost connection: the coordinator asks the barrier (check-back)
//! ```
//!
//! The coordinator is reached over the network (`GrpcCoordinator`, feature `grpc`) or in its own database
//! ([`StoredCoordinator`]). [`check_back`](crate::check_back) is its side.

mod client;
mod fingerprint;
#[cfg(feature = "grpc")]
mod grpc;

use std::sync::Arc;

use landfall_core::{
    BarrierWriter, Decided, Error, ErrorKind, HalfMessage, HalfState, HalfVerdict, MessageId, Prepared, Result,
};

pub use client::{HalfCoordinator, StoredCoordinator};
pub use fingerprint::fingerprint;
#[cfg(feature = "grpc")]
pub use grpc::{GrpcCoordinator, GrpcOptions};

/// The name under which senders decide, in the audit and in metrics.
pub(crate) const SENDER: &str = "sender";

/// Sends half messages about transactions of the service's own database.
///
/// One id has one `run` at a time. After an error of kind `Unknown`, and after a crash, the coordinator asks the
/// barrier; do not run the same id again.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use landfall::half::{HalfProducer, StoredCoordinator};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
/// use landfall::{CheckBack, HalfMessage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The coordinator's database, and the one of this service.
/// let store = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// store.migrate().await?;
/// let shop = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// shop.migrate().await?;
/// # sqlx::query("CREATE TABLE orders (id TEXT)").execute(shop.pool()).await?;
/// let producer = HalfProducer::new(shop, Arc::new(StoredCoordinator::new(Arc::new(store.clone()))));
/// let half = HalfMessage {
///     message: Message::new(TopicName::new("orders")?, "order-1"),
///     business_type: "order".into(),
///     business_id: "order-1".into(),
///     check_back: CheckBack { database: Some("shop".into()), ..CheckBack::default() },
///     check_after: Duration::from_secs(30),
/// };
/// producer
///     .run(&half, async |connection| {
///         sqlx::query("INSERT INTO orders VALUES ('order-1')").execute(connection).await?;
///         Ok::<_, Box<dyn std::error::Error>>(())
///     })
///     .await?;
/// assert_eq!(store.stats().await?.pending, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HalfProducer<D> {
    database: D,
    coordinator: Arc<dyn HalfCoordinator>,
}

impl<D: BarrierWriter> HalfProducer<D> {
    /// Runs transactions on `database`, whose barrier table the coordinator can ask.
    pub fn new(database: D, coordinator: Arc<dyn HalfCoordinator>) -> Self {
        Self { database, coordinator }
    }

    /// Prepares `half`, runs `business` in a transaction with the barrier row, commits it, and then commits `half`.
    ///
    /// An error of `business` rolls both back. If the outcome of the local commit is unknown, the error has the kind
    /// `Unknown`, and the check-back decides. If only the commit at the coordinator fails, this returns `Ok`: the
    /// check-back finds the barrier row.
    pub async fn run<T, E, F>(&self, half: &HalfMessage, business: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut D::Connection) -> Result<T, E>,
        E: From<Error>,
    {
        let id = half.message.id;
        let is_fresh = self.prepare_undecided(half).await?;
        fail::fail_point!("half.after-prepare");
        let mut transaction = match self.database.begin().await {
            Ok(transaction) => transaction,
            Err(error) => return Err(self.give_up(id, is_fresh, error).await.into()),
        };
        // First, so that a check-back during `business` finds the row locked and waits instead of deciding.
        if let Err(error) = self.database.enter_barrier(&mut transaction, id).await {
            drop(transaction);
            // A conflict means that another transaction or a check-back has decided; this one must not.
            let is_undecided = is_fresh && error.kind() != ErrorKind::Conflict;
            return Err(self.give_up(id, is_undecided, error).await.into());
        }
        let value = match business(&mut transaction).await {
            Ok(value) => value,
            Err(error) => {
                drop(transaction);
                self.roll_back_quietly(id, is_fresh).await;
                return Err(error);
            }
        };
        fail::fail_point!("half.before-local-commit");
        match self.database.commit(transaction).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Unknown => return Err(error.into()),
            Err(error) => return Err(self.give_up(id, is_fresh, error).await.into()),
        }
        fail::fail_point!("half.after-local-commit");
        match self.commit(id).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Err(error.into()),
            Err(error) => {
                tracing::warn!(%id, %error, "the commit did not reach the coordinator; the check-back decides");
                Ok(value)
            }
            Ok(()) => Ok(value),
        }
    }

    /// Stores `half` at the coordinator, where consumers cannot see it. Repeating an equal prepare is harmless.
    ///
    /// The local transaction must call [`BarrierWriter::enter_barrier`] before anything else. Fails with kind
    /// `Conflict` if another message was prepared under this id.
    pub async fn prepare(&self, half: &HalfMessage) -> Result<HalfState> {
        match self.prepare_checked(half).await? {
            Prepared::Fresh(state) | Prepared::Repeated(state) => Ok(state),
            Prepared::Conflict => Err(different(half.message.id)),
        }
    }

    /// Publishes a prepared message, after its local transaction has committed. Repeating it is harmless.
    ///
    /// Fails with kind `Conflict` if the message was rolled back.
    pub async fn commit(&self, id: MessageId) -> Result<()> {
        self.decide(id, HalfVerdict::Committed).await
    }

    /// Discards a prepared message, after its local transaction has rolled back. Repeating it is harmless.
    ///
    /// Fails with kind `Conflict` if the message was committed.
    pub async fn rollback(&self, id: MessageId) -> Result<()> {
        self.decide(id, HalfVerdict::RolledBack).await
    }

    async fn prepare_checked(&self, half: &HalfMessage) -> Result<Prepared> {
        check(half)?;
        self.coordinator.prepare(half).await
    }

    /// Returns whether this call stored the message. One that was prepared before may have committed locally.
    async fn prepare_undecided(&self, half: &HalfMessage) -> Result<bool> {
        let id = half.message.id;
        let (state, is_fresh) = match self.prepare_checked(half).await? {
            Prepared::Fresh(state) => (state, true),
            Prepared::Repeated(state) => (state, false),
            Prepared::Conflict => return Err(different(id)),
        };
        match state.verdict() {
            None => Ok(is_fresh),
            Some(verdict) => Err(conflict(format!("half message {id} is {} already", verdict.state().as_str()))),
        }
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict) -> Result<()> {
        match self.coordinator.decide(id, verdict).await? {
            Decided::Now | Decided::Before | Decided::Early => Ok(()),
            Decided::Contradiction(first) => Err(conflict(format!(
                "half message {id} is {} already; the contradiction is recorded, see `landfall half show {id}`",
                first.state().as_str()
            ))),
        }
    }

    async fn give_up(&self, id: MessageId, is_undecided: bool, error: Error) -> Error {
        self.roll_back_quietly(id, is_undecided).await;
        error
    }

    /// Rolls back at the coordinator. If that fails, the check-back finds no barrier row and does the same.
    async fn roll_back_quietly(&self, id: MessageId, is_undecided: bool) {
        if is_undecided && let Err(error) = self.rollback(id).await {
            tracing::warn!(%id, %error, "the rollback did not reach the coordinator; the check-back decides");
        }
    }
}

/// Refuses a half message that no check-back could resolve. Kind `Invalid`.
pub fn check(half: &HalfMessage) -> Result<()> {
    for (name, value) in [("business_type", &half.business_type), ("business_id", &half.business_id)] {
        if value.is_empty() {
            return Err(Error::invalid(format!("{name} is empty; a check-back could not name the transaction")));
        }
    }
    if half.check_back.is_empty() {
        return Err(Error::invalid("check_back names no target; set http, database or grpc"));
    }
    Ok(())
}

fn conflict(text: String) -> Error {
    Error::new(ErrorKind::Conflict, text)
}

fn different(id: MessageId) -> Error {
    conflict(format!("another half message was prepared under the id {id}; use another id"))
}

impl<D> std::fmt::Debug for HalfProducer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HalfProducer").finish_non_exhaustive()
    }
}
