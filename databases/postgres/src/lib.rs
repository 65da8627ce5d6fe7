//! Landfall's outbox, inbox, leases and dead letters on PostgreSQL (14 or newer), for transactions of sqlx.
//!
//! [`Postgres`] implements every database port of `landfall-core`. It is cheap to clone; its clones share one pool, the
//! relay's cursor and the background tasks, which carry wake-ups between processes (`signals.rs`) and empty parts of the
//! outbox that are settled (`rotation.rs`), and end with the last clone.
//!
//! * `migrations/` holds the tables and the functions of the relay's hot path; `schema.rs` applies them.
//! * `statements.rs` holds every other statement. The table prefix is the only text that is ever pasted into SQL.
//! * `outbox_writer.rs`: the outbox for senders. `outbox_queue.rs`, `outbox_read.rs`, `outbox_settle.rs`, with `cursor.rs`
//!   and `snapshot.rs`: for relays that keep order. `competing.rs`: for those that do not. `outbox_view.rs`,
//!   `outbox_control.rs`: for people.
//! * `inbox.rs`, `dead_letter.rs`, `lease.rs`, `housekeeping.rs`: the other ports, one file each.
//! * `session.rs`: a connection for one call, through a pooler or not. `rebase.rs`: after a restore into another cluster.
//!
//! Whatever compares times uses the server's clock; this process's clock only says how long its own leases last.

mod background;
mod competing;
mod constraint;
mod cursor;
mod database;
mod dead_letter;
mod doctor;
mod error;
mod housekeeping;
mod import;
mod in_step;
mod inbox;
mod inbox_view;
mod lease;
mod marks;
mod moment;
mod outbox_control;
mod outbox_look;
mod outbox_queue;
mod outbox_read;
mod outbox_settle;
mod outbox_view;
mod outbox_writer;
mod read_ahead;
mod rebase;
mod rotation;
mod row;
mod schema;
mod sequence;
mod session;
mod signals;
mod snapshot;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ConnectionEpoch, DatabaseCapabilities, Error, ErrorKind, Limits, Result, TablePrefix};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool};

use crate::cursor::Cursor;
pub use crate::in_step::in_step;
use crate::in_step::look_for_its_client;
use crate::rotation::Rotation;
use crate::signals::Signals;
use crate::statements::Statements;

/// How long [`Postgres::connect`] tries before it says that the server cannot be reached.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);
/// How long a call waits for a connection of the pool.
const ACQUIRE_WITHIN: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tested before it is used. Testing each time would cost a round trip.
const TEST_AFTER_IDLE: Duration = Duration::from_secs(1);

/// What an application chooses about its tables and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Before every table's name, with an optional schema.
    pub prefix: TablePrefix,
    pub limits: Limits,
    /// Connections of the pool that [`Postgres::connect`] makes. Wake-ups use at most two more.
    pub max_connections: u32,
    /// Keeps sent messages for this long, in `outbox_sent`; else they go as soon as their part of the outbox is emptied.
    pub keep_sent: Option<Duration>,
    /// Whether connections come from a pooler that shares them by the transaction (PgBouncer's `pool_mode = transaction`).
    /// Statements are then not prepared under names, and each runs in a transaction. Wake-ups between processes do not
    /// pass through such a pooler: the relay polls. `?pooler=transaction` in the URL says the same.
    pub pooler: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: TablePrefix::default(),
            limits: Limits::default(),
            max_connections: 10,
            keep_sent: None,
            pooler: false,
        }
    }
}

/// A PostgreSQL database with Landfall's tables in it.
#[derive(Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

struct WeakPostgres(std::sync::Weak<Inner>);

impl WeakPostgres {
    fn upgrade(&self) -> Option<Postgres> {
        self.0.upgrade().map(|inner| Postgres { inner })
    }
}

struct Inner {
    pool: PgPool,
    prefix: TablePrefix,
    limits: Limits,
    /// In the connections of a pool that this has made.
    trust: Option<Arc<ConnectionEpoch>>,
    /// The server and the database as errors name them, without user and password.
    place: String,
    statements: Statements,
    signals: Signals,
    /// Whether connections are shared with others by the transaction.
    pooler: bool,
    reads_committed: tokio::sync::OnceCell<bool>,
    /// Whether somebody here has seen that the tables belong to this cluster; for claims, which take nothing over.
    at_home: tokio::sync::OnceCell<()>,
    cursor: tokio::sync::Mutex<Cursor>,
    keep_sent: Option<Duration>,
    rotation: Rotation,
}

impl Postgres {
    pub const CAPABILITIES: DatabaseCapabilities =
        DatabaseCapabilities { concurrent_writers: true, wakes_across_processes: true, competing_relays: true };

    /// Connects to `postgres://user:password@host:port/database`.
    ///
    /// Fails within five seconds and with kind `Unavailable` where nobody answers. The tables are not looked at: that
    /// is what `Schema::check` and `Schema::migrate` are for.
    pub async fn connect(url: &str, mut options: Options) -> Result<Self> {
        let (url, behind_pooler) = without_pooler(url)?;
        options.pooler |= behind_pooler;
        let mut target: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| {
            Error::invalid("the database URL is not of the form postgres://user:password@host:port/database")
                .with_source(error)
        })?;
        if target.get_application_name().is_none() {
            target = target.application_name("landfall");
        }
        if options.pooler {
            // A pooler refuses a connection that asks for a setting it does not know.
            target = target.statement_cache_capacity(0).extra_float_digits(None);
        }
        let place = place(&target);
        // A pool tries until its time is up and then only says that it is up; one connection by hand says why.
        match tokio::time::timeout(CONNECT_WITHIN, PgConnection::connect_with(&target)).await {
            Ok(Ok(connection)) => drop(connection.close().await),
            Ok(Err(error)) => return Err(error::translate(&place, "open a connection", error)),
            Err(_) => {
                let seconds = CONNECT_WITHIN.as_secs();
                let sentence = format!("PostgreSQL at {place} did not answer within {seconds} seconds");
                return Err(Error::new(ErrorKind::Unavailable, sentence));
            }
        }
        let is_behind_pooler = options.pooler;
        let trust = Arc::new(ConnectionEpoch::default());
        let trusted = trust.clone();
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections.max(1))
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
            .after_connect(move |connection, _| Box::pin(look_for_its_client(connection, is_behind_pooler)))
            .connect_lazy_with(target);
        Ok(Self::on(pool, options, Some(trust)))
    }

    /// Works on the application's own pool, whose size and timeouts stay as they are (`max_connections` is not used). Such
    /// a pool should check what comes back to it: see [`in_step()`].
    pub fn from_pool(pool: PgPool, options: Options) -> Self {
        Self::on(pool, options, None)
    }

    fn on(pool: PgPool, options: Options, trust: Option<Arc<ConnectionEpoch>>) -> Self {
        let Options { prefix, limits, max_connections: _, keep_sent, pooler } = options;
        let target = pool.connect_options();
        let place = place(&target);
        let signals = Signals::new(&target, &prefix, !pooler);
        let statements = Statements::new(&prefix);
        let cursor = tokio::sync::Mutex::default();
        let rotation = Rotation::default();
        Self {
            inner: Arc::new(Inner {
                pool,
                prefix,
                limits,
                trust,
                place,
                statements,
                signals,
                pooler,
                reads_committed: tokio::sync::OnceCell::new(),
                at_home: tokio::sync::OnceCell::new(),
                cursor,
                keep_sent,
                rotation,
            }),
        }
    }

    pub fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    pub fn prefix(&self) -> &TablePrefix {
        &self.inner.prefix
    }

    /// For tasks in the background, which must not keep alive what ends them.
    fn downgrade(&self) -> WeakPostgres {
        WeakPostgres(Arc::downgrade(&self.inner))
    }

    fn statements(&self) -> &Statements {
        &self.inner.statements
    }

    /// For `map_err`: what was being done, as the end of "PostgreSQL at … could not …".
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

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { place, prefix, .. } = &*self.inner;
        f.debug_struct("Postgres").field("place", place).field("prefix", prefix).finish_non_exhaustive()
    }
}

/// The URL without `pooler=…`, which the driver does not know, and whether it was there.
fn without_pooler(url: &str) -> Result<(String, bool)> {
    let Some((address, parameters)) = url.split_once('?') else { return Ok((url.to_owned(), false)) };
    let (ours, others): (Vec<&str>, Vec<&str>) =
        parameters.split('&').partition(|parameter| parameter.starts_with("pooler="));
    if let Some(unknown) = ours.iter().find(|parameter| **parameter != "pooler=transaction") {
        return Err(Error::invalid(format!("{unknown:?} in the database URL should be \"pooler=transaction\"")));
    }
    let url = if others.is_empty() { address.to_owned() } else { format!("{address}?{}", others.join("&")) };
    Ok((url, !ours.is_empty()))
}

fn place(target: &PgConnectOptions) -> String {
    let database = target.get_database().unwrap_or_else(|| target.get_username());
    match target.get_socket() {
        Some(socket) => format!("{}/{database}", socket.display()),
        None => format!("{}:{}/{database}", target.get_host(), target.get_port()),
    }
}
