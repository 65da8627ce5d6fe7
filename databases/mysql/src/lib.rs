//! Landfall's outbox, inbox, leases and dead letters on MariaDB (10.6 or newer) and MySQL (8.0.17 or newer), for
//! transactions of sqlx.
//!
//! [`MySql`] implements every database port of `landfall-core`. It is cheap to clone; its clones share one pool.
//!
//! * `migrations/` holds the tables; `schema.rs` applies them, and goes on where an earlier try was interrupted.
//! * `statements.rs` holds every statement. The table prefix is the only text that is ever pasted into SQL.
//! * `outbox_writer.rs`, `outbox_queue.rs` and `outbox_competing.rs`, `outbox_view.rs` and `outbox_control.rs`: the outbox
//!   for senders, for the relay with and without order, for people. `settle.rs` is what all of them do to rows.
//! * `inbox.rs`, `dead_letter.rs`, `lease.rs`, `housekeeping.rs`: the other ports, one file each.
//!
//! Every transaction names its isolation level, READ COMMITTED: the gap locks of the server's default would make writers
//! wait for relays. Nothing is written that needs `RETURNING`, which MySQL does not have: rows are locked, then changed.
//! Whatever compares times uses the server's clock in UTC; this process's clock only says how long its own leases last.

mod constraint;
mod database;
mod dead_letter;
mod doctor;
mod error;
mod housekeeping;
mod import;
mod in_step;
mod inbox;
mod inbox_batch;
mod inbox_view;
mod lease;
mod moment;
mod outbox_competing;
mod outbox_control;
mod outbox_queue;
mod outbox_view;
mod outbox_writer;
mod retry;
mod row;
mod schema;
mod sequence;
mod settle;
mod signals;
mod sql;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ConnectionEpoch, DatabaseCapabilities, Error, ErrorKind, Limits, Result, TablePrefix};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Connection, MySqlConnection, MySqlPool};
use tokio::sync::OnceCell;

pub use crate::database::Transaction;
pub use crate::in_step::in_step;
use crate::signals::Signals;
use crate::statements::Statements;

/// How long [`MySql::connect`] tries before it says that the server cannot be reached.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);
/// How long a call waits for a connection of the pool.
const ACQUIRE_WITHIN: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tested before it is used. Testing each time would cost a round trip.
const TEST_AFTER_IDLE: Duration = Duration::from_secs(1);

/// What an application chooses about its tables and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Before every table's name, with an optional database.
    pub prefix: TablePrefix,
    pub limits: Limits,
    /// Connections of the pool that [`MySql::connect`] makes, two at least.
    pub max_connections: u32,
    /// How long a sent message is to be kept, in `landfall_outbox_sent`; `None` drops it at once. What is kept goes when
    /// [`Housekeeping::remove_sent`](landfall_core::Housekeeping::remove_sent) is called.
    pub keep_sent: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { prefix: TablePrefix::default(), limits: Limits::default(), max_connections: 10, keep_sent: None }
    }
}

/// A MariaDB or MySQL database with Landfall's tables in it.
#[derive(Clone)]
pub struct MySql {
    inner: Arc<Inner>,
}

struct Inner {
    pool: MySqlPool,
    prefix: TablePrefix,
    limits: Limits,
    /// In the connections of a pool that this has made.
    trust: Option<Arc<ConnectionEpoch>>,
    keeps_sent: bool,
    /// The server and the database as errors name them, without user and password.
    place: String,
    statements: Statements,
    signals: Signals,
    /// The server's `max_allowed_packet`, once somebody needed to know it.
    packet_bytes: OnceCell<usize>,
}

impl MySql {
    pub const CAPABILITIES: DatabaseCapabilities =
        DatabaseCapabilities { concurrent_writers: true, wakes_across_processes: false, competing_relays: true };

    /// Connects to `mysql://user:password@host:port/database`; `mariadb://` means the same.
    ///
    /// Fails within five seconds and with kind `Unavailable` where nobody answers. The tables are not looked at: that
    /// is what `Schema::check` and `Schema::migrate` are for.
    pub async fn connect(url: &str, options: Options) -> Result<Self> {
        let target: MySqlConnectOptions = url.parse().map_err(|error: sqlx::Error| {
            Error::invalid("the database URL is not of the form mysql://user:password@host:port/database")
                .with_source(error)
        })?;
        let place = place(&target);
        // A pool tries until its time is up and then only says that it is up; one connection by hand says why.
        match tokio::time::timeout(CONNECT_WITHIN, MySqlConnection::connect_with(&target)).await {
            Ok(Ok(connection)) => drop(connection.close().await),
            Ok(Err(error)) => return Err(error::translate(&place, "open a connection", error)),
            Err(_) => {
                let seconds = CONNECT_WITHIN.as_secs();
                let sentence = format!("MySQL at {place} did not answer within {seconds} seconds");
                return Err(Error::new(ErrorKind::Unavailable, sentence));
            }
        }
        let trust = Arc::new(ConnectionEpoch::default());
        let trusted = trust.clone();
        let pool = MySqlPoolOptions::new()
            .max_connections(options.max_connections.max(2))
            .acquire_timeout(ACQUIRE_WITHIN)
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let is_trusted = trusted.covers(meta.age);
                Box::pin(async move {
                    if !is_trusted {
                        return Ok(false);
                    }
                    if meta.idle_for > TEST_AFTER_IDLE {
                        return in_step(connection).await;
                    }
                    Ok(true)
                })
            })
            .after_release(|connection, _| Box::pin(in_step(connection)))
            .connect_lazy_with(target);
        Ok(Self::on(pool, options, Some(trust)))
    }

    /// Works on the application's own pool, whose size and timeouts stay as they are (`max_connections` is not used). Such
    /// a pool should check what comes back to it: see [`in_step()`].
    pub fn from_pool(pool: MySqlPool, options: Options) -> Self {
        Self::on(pool, options, None)
    }

    fn on(pool: MySqlPool, options: Options, trust: Option<Arc<ConnectionEpoch>>) -> Self {
        let Options { prefix, limits, max_connections: _, keep_sent } = options;
        let inner = Inner {
            place: place(&pool.connect_options()),
            statements: Statements::new(&prefix),
            signals: Signals::default(),
            packet_bytes: OnceCell::new(),
            keeps_sent: keep_sent.is_some_and(|time| !time.is_zero()),
            pool,
            prefix,
            limits,
            trust,
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn pool(&self) -> &MySqlPool {
        &self.inner.pool
    }

    pub fn prefix(&self) -> &TablePrefix {
        &self.inner.prefix
    }

    fn statements(&self) -> &Statements {
        &self.inner.statements
    }

    /// For `map_err`: what was being done, as the end of "MySQL at … could not …".
    fn could_not(&self, what: &'static str) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        move |error| {
            self.hear(&error);
            error::translate(&self.inner.place, what, error)
        }
    }

    /// For `map_err`, of a commit.
    fn could_not_commit(&self) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        move |error| {
            self.hear(&error);
            error::translate_commit(&self.inner.place, error)
        }
    }

    fn hear(&self, error: &sqlx::Error) {
        if let Some(trust) = &self.inner.trust
            && error::is_read_only(error)
        {
            trust.lose();
        }
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { place, prefix, .. } = &*self.inner;
        f.debug_struct("MySql").field("place", place).field("prefix", prefix).finish_non_exhaustive()
    }
}

fn place(target: &MySqlConnectOptions) -> String {
    let database = target.get_database().unwrap_or_default();
    match target.get_socket() {
        Some(socket) => format!("{}/{database}", socket.display()),
        None => format!("{}:{}/{database}", target.get_host(), target.get_port()),
    }
}
