//! Landfall's outbox, inbox, leases and dead letters on SQLite.
//!
//! [`Sqlite`] implements every database port of `landfall-core`. It is cheap to clone and safe to share; several
//! processes may work on the same file.
//!
//! * **Durability**: write-ahead log, `synchronous = FULL`. A consumer commits its broker offset after its effect, so
//!   an effect lost in a power cut would be a lost message.
//! * **One writer at a time**: SQLite has one write lock. Inside a process, writers queue for it in order of arrival (a
//!   semaphore). Between processes, they request it every millisecond. SQLite's own busy handler sleeps for longer and
//!   longer: of nine busy writers in two processes, the unluckiest waited 990 ms with it, and 140 ms with this. Waiting
//!   fails after 30 seconds. Reads never wait.
//! * **One shard**: with one writer, more have no advantage, and every key belongs to shard 0.
//! * **Clock**: all times are SQLite's, and all processes that share a file share a machine.
//!
//! An in-memory database (`sqlite::memory:`) has a single connection, since every further one would see an empty
//! database. An open transaction there blocks every other call, reads included.
//!
//! The folders are those of the other adapters: `migrations/` and `schema.rs`, `statements.rs`, `connection/`,
//! `outbox/`, `inbox/`, `dead_letter.rs`, `delivery.rs`, `lease.rs`, `housekeeping.rs`, `import/`, `doctor/`. Half
//! messages are in `half_message.rs` and `barrier.rs`.

mod barrier;
mod connection;
mod constraint;
mod dead_letter;
mod delivery;
mod doctor;
mod half_message;
mod housekeeping;
mod idempotency;
mod import;
mod inbox;
mod lease;
mod outbox;
mod portable;
mod row;
mod schema;
mod signals;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;
use landfall_core::{Error, ErrorKind, Limits, Result, TablePrefix};
use sqlx::SqlitePool;
use tokio::sync::Semaphore;

use crate::connection::error;
use crate::connection::open::{self, Pools};
pub use crate::connection::transaction::Transaction;
use crate::signals::{Seen, Signals};
use crate::statements::Statements;

/// Options of the tables and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Prefix of every table's name. SQLite has no schemas, so it must not name one.
    pub prefix: TablePrefix,
    pub limits: Limits,
    /// Size of the pool that [`Sqlite::open`] creates. One more connection writes, and one more checks for commits. An
    /// in-memory database always has a single connection.
    pub max_connections: u32,
    /// How long sent messages are kept, in `landfall_outbox_sent`; `None` deletes them at once. A call of
    /// [`Housekeeping::remove_expired`](landfall_core::Housekeeping::remove_expired) removes kept messages; a
    /// `Housekeeper` calls it.
    pub keep_sent: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { prefix: TablePrefix::default(), limits: Limits::default(), max_connections: 8, keep_sent: None }
    }
}

/// A SQLite database behind Landfall's ports.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> landfall_core::Result<()> {
/// use landfall_core::Schema;
/// use landfall_sqlite::{Options, Sqlite};
///
/// let database = Sqlite::open("sqlite::memory:", Options::default()).await?;
/// database.migrate().await?;
/// # Ok(())
/// # }
/// ```
pub struct Sqlite {
    inner: Arc<Inner>,
    /// Per clone, so that no clone consumes another's wake-up.
    seen: Seen,
}

struct Inner {
    /// For reads and for the caller's own statements.
    pool: SqlitePool,
    /// For the transactions of this instance.
    writer: SqlitePool,
    /// The file, as in errors.
    name: String,
    prefix: TablePrefix,
    limits: Limits,
    keeps_sent: bool,
    statements: Statements,
    /// One permit: the right to request SQLite's write lock.
    writers: Arc<Semaphore>,
    signals: Signals,
}

impl Sqlite {
    pub const CAPABILITIES: DatabaseCapabilities =
        DatabaseCapabilities { concurrent_writers: false, wakes_across_processes: true, competing_relays: false };

    /// Opens `url`: `sqlite:orders.db`, `sqlite:///var/lib/orders.db`, `sqlite::memory:` or a plain path. Creates the
    /// file and its folder if they are missing, unless the URL has `?mode=rw` or `?mode=ro`.
    ///
    /// Errors: `Invalid` for a path that cannot be a database file; `Corrupt` for a file that is not a database;
    /// `Unavailable` for one that cannot be opened now. [`Schema::migrate`](landfall_core::Schema::migrate) creates the
    /// tables.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        // Before any file is created.
        refuse_schema(&options.prefix)?;
        let Pools { pool, writer } = open::pools(url, options.max_connections).await?;
        Ok(Self::new(pool, writer, options))
    }

    /// Uses the caller's own pool and leaves its settings as they are. It needs a write-ahead log, `synchronous = FULL`
    /// and a busy timeout, or the promises of [`Sqlite::open`] do not hold.
    ///
    /// Transactions that the caller begins on the pool do not queue with those of this instance and its clones;
    /// SQLite's busy handler arbitrates. Begin a transaction that reads before it writes with `BEGIN IMMEDIATE`, or
    /// SQLite may refuse its first write.
    pub fn from_pool(pool: SqlitePool, options: Options) -> Result<Self> {
        refuse_schema(&options.prefix)?;
        Ok(Self::new(pool.clone(), pool, options))
    }

    fn new(pool: SqlitePool, writer: SqlitePool, options: Options) -> Self {
        let Options { prefix, limits, max_connections: _, keep_sent } = options;
        let settings = pool.connect_options();
        let inner = Inner {
            name: settings.get_filename().display().to_string(),
            statements: Statements::new(&prefix),
            signals: Signals::new(&settings),
            writers: Arc::new(Semaphore::new(1)),
            pool,
            writer,
            prefix,
            limits,
            keeps_sent: keep_sent.is_some_and(|time| !time.is_zero()),
        };
        Self { inner: Arc::new(inner), seen: Seen::default() }
    }

    /// Returns the pool, for the caller's own statements.
    pub fn pool(&self) -> &SqlitePool {
        &self.inner.pool
    }

    pub fn prefix(&self) -> &TablePrefix {
        &self.inner.prefix
    }

    /// For `map_err`: translates a driver's error to `cannot <what> in <file>`.
    fn cannot(&self, what: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
        move |error| error::translate(&self.inner.name, what, error)
    }

    fn statements(&self) -> &Statements {
        &self.inner.statements
    }
}

fn refuse_schema(prefix: &TablePrefix) -> Result<()> {
    match prefix.schema() {
        Some(schema) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("table prefix {prefix} names the schema {schema}, and SQLite has no schemas; leave it out"),
        )),
        None => Ok(()),
    }
}

impl Clone for Sqlite {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), seen: Seen::default() }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("file", &self.inner.name).field("prefix", &self.inner.prefix.as_str()).finish()
    }
}
