//! The record in the transaction of the work: one commit, no lease.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::Result;
use landfall_core::idempotency::{Claim, Fingerprint, Identity, Opened, RecordWriter, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::attempt::refusal;
use super::counters::{Counted, count, register};
use super::engine::{Answer, Codec, Joining, in_flight};
use super::error::Error;
use super::flights::{Flight, Flights};

/// Runs work once per [`Identity`], with the record in the work's own transaction.
///
/// The record, the rows that the work writes and the messages it enqueues are one commit. A crash, a panic or a dropped
/// caller rolls all of it back, so the outcome is never uncertain. The work must do nothing outside the transaction
/// that a repeat would double.
///
/// ```
/// use landfall::idempotency::{FingerprintBuilder, Identity, InTransaction, Scope};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// shop.migrate().await?;
/// # sqlx::query("CREATE TABLE orders (id TEXT)").execute(shop.pool()).await?;
/// let orders = InTransaction::new(shop.clone());
/// let key = Identity::new(Scope::principal("tenant-7")?, "order", "42")?;
/// let request = FingerprintBuilder::new("order").part("two books").finish();
/// for is_repeat in [false, true] {
///     let placed = orders
///         .run(&key, &request, async |connection| {
///             sqlx::query("INSERT INTO orders VALUES ('42')").execute(&mut *connection).await?;
///             Ok::<_, sqlx::Error>("placed".to_owned())
///         })
///         .await?;
///     assert_eq!((placed.value.as_str(), placed.is_replayed), ("placed", is_repeat));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InTransaction<D> {
    database: D,
    flights: Arc<Flights>,
    max_waiters: usize,
    wait: Duration,
}

impl<D: RecordWriter> InTransaction<D> {
    /// Uses the tables of `database`. Use one value per process: concurrent callers with one key share one transaction.
    pub fn new(database: D) -> Self {
        Self { database, flights: Arc::default(), max_waiters: 1000, wait: Duration::from_secs(2) }
    }

    /// Sets how long a call waits for another transaction with the same key; two seconds by default.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Runs `work` in a transaction unless it was done before, and returns its value, which is stored as JSON.
    ///
    /// An error of `work` rolls back, and the key is free again. After [`Error::Unconfirmed`], such as for a connection
    /// that is lost during the commit, repeat the call: it finds the record, or runs.
    pub async fn run<T, E, F>(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        work: F,
    ) -> Result<Answer<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&mut D::Connection) -> Result<T, E>,
    {
        self.execute(identity, fingerprint, Codec::json(), work).await
    }

    /// Does the same for work whose value is an answer with status and headers.
    pub async fn run_snapshot<E, F>(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        work: F,
    ) -> Result<Answer<Snapshot>, Error<E>>
    where
        F: AsyncFnOnce(&mut D::Connection) -> Result<Snapshot, E>,
    {
        self.execute(identity, fingerprint, Codec::snapshot(), work).await
    }

    async fn execute<T, E, F>(
        &self,
        identity: &Identity,
        fingerprint: &Fingerprint,
        codec: Codec<T>,
        work: F,
    ) -> Result<Answer<T>, Error<E>>
    where
        F: AsyncFnOnce(&mut D::Connection) -> Result<T, E>,
    {
        let business_type = identity.business_type();
        register(business_type);
        let deadline = Instant::now() + self.wait;
        let joining =
            Joining { flights: &self.flights, max_waiters: self.max_waiters, identity, fingerprint, deadline };
        let flight = match joining.join(self.wait).await? {
            Ok(flight) => flight,
            Err(answer) => return Ok(Answer { value: (codec.decode)(answer)?, is_replayed: true }),
        };
        let count_error = |error| {
            count(Counted::StoreError, business_type);
            error
        };
        // Bounded: another process may have the same key in an open transaction.
        let opened = timeout_at(deadline, self.open(identity, fingerprint)).await;
        let Ok(opened) = opened else {
            count(Counted::Conflict, business_type);
            return Err(in_flight(self.wait));
        };
        let mut transaction = match opened.map_err(count_error)? {
            Begun::Fresh(transaction) => transaction,
            Begun::Refused(claim) => return replay(flight, business_type, codec, claim),
        };
        flight.claimed();
        let value = work(&mut transaction).await.map_err(Error::Work)?;
        let answer = (codec.encode)(&value).map_err(Error::Value)?;
        let unconfirmed = |error| Error::Unconfirmed(count_error(error));
        self.database.store_answer(&mut transaction, identity, &answer).await.map_err(unconfirmed)?;
        fail::fail_point!("idempotency.before-commit");
        self.database.commit(transaction).await.map_err(unconfirmed)?;
        fail::fail_point!("idempotency.after-commit");
        count(Counted::Executed, business_type);
        flight.done(answer);
        Ok(Answer { value, is_replayed: false })
    }

    async fn open(&self, identity: &Identity, fingerprint: &Fingerprint) -> Result<Begun<D>> {
        let mut transaction = self.database.begin().await?;
        match self.database.open_record(&mut transaction, identity, fingerprint).await? {
            Opened::Fresh => Ok(Begun::Fresh(transaction)),
            Opened::Refused(claim) => {
                // The caller acts on what was read.
                self.database.flush(transaction).await?;
                Ok(Begun::Refused(claim))
            }
        }
    }
}

enum Begun<D: RecordWriter> {
    Fresh(D::Transaction),
    Refused(Claim),
}

fn replay<T, E>(flight: Flight, business_type: &str, codec: Codec<T>, claim: Claim) -> Result<Answer<T>, Error<E>> {
    match claim {
        Claim::Completed(answer) => {
            flight.done(answer.clone());
            count(Counted::Replayed, business_type);
            Ok(Answer { value: (codec.decode)(answer)?, is_replayed: true })
        }
        refused => {
            let (counted, error) = refusal(refused);
            count(counted, business_type);
            Err(error)
        }
    }
}

impl<D> std::fmt::Debug for InTransaction<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InTransaction").field("wait", &self.wait).finish_non_exhaustive()
    }
}
