//! Landfall's outbox, inbox, leases and dead letters on SQLite.
//!
//! [`Sqlite`] implements every database port of `landfall-core`. It is cheap to clone and safe to share; several
//! processes may work on the same file.
//!
//! * **Durability**: write-ahead log, `synchronous = FULL`. A consumer commits its broker offset after its effect, so
//!   an effect that a power cut could take back would be a lost message.
//! * **One writer at a time**: SQLite has one write lock. Inside a process writers queue for it in order of arrival
//!   (a semaphore); between processes they ask for it every millisecond. SQLite's own way of waiting is to sleep for
//!   longer and longer: of nine busy writers in two processes the unluckiest waited 990 ms with it, and 140 ms with
//!   this. Waiting ends with an error after 30 seconds. Reads wait for nobody.
//! * **One shard**: with one writer there is nothing to gain from more, and every key belongs to shard 0.
//! * **Clock**: all times are SQLite's, and all processes that share a file share a machine.
//!
//! An in-memory database (`sqlite::memory:`) has a single connection, since every further one would see an empty
//! database: whoever holds a transaction there keeps everybody else waiting, reads included.

mod constraint;
mod database;
mod dead_letter;
mod doctor;
mod error;
mod housekeeping;
mod import;
mod inbox;
mod inbox_view;
mod lease;
mod open;
mod outbox_competing;
mod outbox_control;
mod outbox_queue;
mod outbox_view;
mod outbox_writer;
mod row;
mod schema;
mod sequence;
mod signals;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{DatabaseCapabilities, Error, ErrorKind, Limits, Result, TablePrefix};
use sqlx::SqlitePool;
use tokio::sync::Semaphore;

pub use crate::database::Transaction;
use crate::open::Pools;
use crate::signals::{Heard, Signals};
use crate::statements::Statements;

/// What a [`Sqlite`] works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What stands before every table's name. SQLite has no schemas, so it must not name one.
    pub prefix: TablePrefix,
    pub limits: Limits,
    /// Connections of the pool that [`Sqlite::open`] makes. One more writes, and one more looks out for commits. An
    /// in-memory database has a single one, whatever stands here.
    pub max_connections: u32,
    /// How long a sent message is to be kept, in `landfall_outbox_sent`; `None` drops it at once. What is kept goes when
    /// [`Housekeeping::remove_sent`](landfall_core::Housekeeping::remove_sent) is called, which a `Housekeeper` does.
    pub keep_sent: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { prefix: TablePrefix::default(), limits: Limits::default(), max_connections: 8, keep_sent: None }
    }
}

/// A SQLite database behind Landfall's ports.
pub struct Sqlite {
    inner: Arc<Inner>,
    /// What this clone has heard of; each clone has its own, so that none takes another's wake-up away.
    heard: Heard,
}

struct Inner {
    /// For reads, and for the caller's own statements.
    pool: SqlitePool,
    /// For the transactions of this instance.
    writer: SqlitePool,
    /// The file, as errors name it.
    name: String,
    prefix: TablePrefix,
    limits: Limits,
    keeps_sent: bool,
    statements: Statements,
    /// One permit: the right to ask SQLite for its write lock.
    writers: Arc<Semaphore>,
    signals: Signals,
}

impl Sqlite {
    pub const CAPABILITIES: DatabaseCapabilities =
        DatabaseCapabilities { concurrent_writers: false, wakes_across_processes: true, competing_relays: false };

    /// Opens `url` (`sqlite:orders.db`, `sqlite:///var/lib/orders.db`, `sqlite::memory:` or a plain path) and creates
    /// the file and its folder where they are missing, unless the URL says `?mode=rw` or `?mode=ro`.
    ///
    /// Kinds: `Invalid` for a path that cannot be a database file, `Corrupt` for a file that is none, `Unavailable`
    /// for one that cannot be opened now. The tables are made by [`Schema::migrate`](landfall_core::Schema::migrate).
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        // Before anything is created on the disk.
        refuse_schema(&options.prefix)?;
        let Pools { pool, writer } = open::pools(url, options.max_connections).await?;
        Ok(Self::new(pool, writer, options))
    }

    /// Works on the caller's own pool, whose settings stay as they are: give it a write-ahead log,
    /// `synchronous = FULL` and a busy timeout, or the promises of [`Sqlite::open`] do not hold.
    ///
    /// Transactions that the caller begins on the pool itself do not queue with those of this instance and its
    /// clones; SQLite's busy handler stands between them. Begin those that read before they write with
    /// `BEGIN IMMEDIATE`, or SQLite may refuse their first write.
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
        Self { inner: Arc::new(inner), heard: Heard::default() }
    }

    /// The pool, for the caller's own statements.
    pub fn pool(&self) -> &SqlitePool {
        &self.inner.pool
    }

    pub fn prefix(&self) -> &TablePrefix {
        &self.inner.prefix
    }

    /// Turns a driver's error into a port's: `cannot <what> in <file>`.
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
        Self { inner: Arc::clone(&self.inner), heard: Heard::default() }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("file", &self.inner.name).field("prefix", &self.inner.prefix.as_str()).finish()
    }
}
