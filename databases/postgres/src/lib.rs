//! Landfall's outbox, inbox, leases and dead letters on PostgreSQL (14 or newer), for transactions of sqlx.
//!
//! [`Postgres`] implements every database port of `landfall-core`. It is cheap to clone. Clones share one pool, the
//! relay's cursor and the background tasks: `signals.rs` carries wake-ups between processes, `outbox/rotation.rs`
//! empties settled partitions of the outbox. The tasks end with the last clone.
//!
//! * `migrations/`: the tables, and the relay's hot path as SQL functions. `schema.rs` applies them.
//! * `statements.rs`: every other statement. The table prefix is the only text that is ever pasted into SQL.
//! * `connection/`: pool checks, sessions, transactions, error codes.
//! * `outbox/`: for senders, relays and operators. `outbox/window/`: how a relay reads between two snapshots.
//! * `inbox/`, `dead_letter.rs`, `delivery.rs`, `lease.rs`, `housekeeping.rs`, `import/`, `doctor/`: the other ports.
//!
//! Times are compared on the server's clock. This process's clock only measures how long its own leases last.

mod background;
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
mod timestamp;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{ConnectionEpoch, DatabaseCapabilities};
use landfall_core::{Error, Limits, Result, TablePrefix};
use landfall_sql_toolkit::{GroupedCalls, Server, pool_options, probe};
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, PgPool};

use crate::connection::detect_lost_client;
use crate::connection::error::SqlState;
pub use crate::connection::reset_if_desynced;
use crate::half_message::{Decisions, Inserts};
use crate::outbox::rotation::Rotation;
use crate::outbox::window::Cursor;
use crate::signals::Signals;
use crate::statements::Statements;

/// Options of the tables and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Prefix of every table's name, with an optional schema.
    pub prefix: TablePrefix,
    pub limits: Limits,
    /// Size of the pool that [`Postgres::connect`] creates. Wake-ups use at most two more connections.
    pub max_connections: u32,
    /// How long sent messages are kept, in `outbox_sent`. `None` removes them with their partition of the outbox.
    pub keep_sent: Option<Duration>,
    /// Whether connections go through a pooler in transaction mode (PgBouncer's `pool_mode = transaction`). Statements
    /// are then not prepared under names, and each runs in a transaction. Wake-ups between processes do not pass
    /// through such a pooler, and the relay polls. `?pooler=transaction` in the URL has the same effect.
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
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_core::Schema;
/// use landfall_postgres::{Options, Postgres};
///
/// let options = Options { max_connections: 20, ..Options::default() };
/// let database = Postgres::connect("postgres://shop:secret@db/shop", options).await?;
/// database.migrate().await?;
/// # Ok(())
/// # }
/// ```
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
    server: Server<SqlState>,
    statements: Statements,
    signals: Signals,
    /// Whether connections go through a pooler in transaction mode.
    pooler: bool,
    reads_committed: tokio::sync::OnceCell<bool>,
    /// Set once the tables are known to belong to this cluster. For claims: they take over no shards, which checks it.
    is_adopted: tokio::sync::OnceCell<()>,
    cursor: tokio::sync::Mutex<Cursor>,
    keep_sent: Option<Duration>,
    rotation: Rotation,
    half_inserts: GroupedCalls<Inserts>,
    half_decisions: GroupedCalls<Decisions>,
}

impl Postgres {
    pub const CAPABILITIES: DatabaseCapabilities =
        DatabaseCapabilities { concurrent_writers: true, wakes_across_processes: true, competing_relays: true };

    /// Connects to `postgres://user:password@host:port/database`.
    ///
    /// Fails within five seconds, with kind `Unavailable`, if the server does not answer. Does not check the tables;
    /// call `Schema::check` or `Schema::migrate`.
    pub async fn connect(url: &str, mut options: Options) -> Result<Self> {
        let (url, is_behind_pooler) = without_pooler(url)?;
        options.pooler |= is_behind_pooler;
        let mut target: PgConnectOptions = url.parse().map_err(|error: sqlx::Error| {
            Error::invalid("the database URL is not of the form postgres://user:password@host:port/database")
                .with_source(error)
        })?;
        if target.get_application_name().is_none() {
            target = target.application_name("landfall");
        }
        if options.pooler {
            // A pooler refuses connections that ask for settings it does not know.
            target = target.statement_cache_capacity(0).extra_float_digits(None);
        }
        let epoch = Arc::new(ConnectionEpoch::default());
        let server = Server::new(address(&target), Some(epoch.clone()));
        probe::<_, PgConnection>(&server, &target).await?;
        let is_behind_pooler = options.pooler;
        let pool =
            pool_options(options.max_connections.max(1), epoch, |connection| Box::pin(reset_if_desynced(connection)))
                .after_connect(move |connection, _| Box::pin(detect_lost_client(connection, is_behind_pooler)))
                .connect_lazy_with(target);
        Ok(Self::new(pool, options, server))
    }

    /// Uses the application's own pool and leaves its size and timeouts as they are; `max_connections` is ignored. Such
    /// a pool should check returned connections with [`reset_if_desynced()`].
    pub fn from_pool(pool: PgPool, options: Options) -> Self {
        let server = Server::new(address(&pool.connect_options()), None);
        Self::new(pool, options, server)
    }

    fn new(pool: PgPool, options: Options, server: Server<SqlState>) -> Self {
        let Options { prefix, limits, max_connections: _, keep_sent, pooler } = options;
        let inner = Inner {
            signals: Signals::new(&pool.connect_options(), &prefix, !pooler),
            statements: Statements::new(&prefix),
            pool,
            prefix,
            limits,
            server,
            pooler,
            reads_committed: tokio::sync::OnceCell::new(),
            is_adopted: tokio::sync::OnceCell::new(),
            cursor: tokio::sync::Mutex::default(),
            keep_sent,
            rotation: Rotation::default(),
            half_inserts: GroupedCalls::default(),
            half_decisions: GroupedCalls::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    pub fn prefix(&self) -> &TablePrefix {
        &self.inner.prefix
    }

    /// For background tasks, which must not keep the adapter alive.
    fn downgrade(&self) -> WeakPostgres {
        WeakPostgres(Arc::downgrade(&self.inner))
    }

    fn statements(&self) -> &Statements {
        &self.inner.statements
    }

    /// For `map_err`: `what` completes "PostgreSQL at … could not …".
    fn could_not(&self, what: &'static str) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        self.inner.server.could_not(what)
    }

    fn could_not_commit(&self) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        self.inner.server.could_not_commit()
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { server, prefix, .. } = &*self.inner;
        f.debug_struct("Postgres").field("address", &server.address()).field("prefix", prefix).finish_non_exhaustive()
    }
}

/// Returns the URL without `pooler=…`, which the driver does not know, and whether it was there.
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

fn address(target: &PgConnectOptions) -> String {
    let database = target.get_database().unwrap_or_else(|| target.get_username());
    match target.get_socket() {
        Some(socket) => format!("{}/{database}", socket.display()),
        None => format!("{}:{}/{database}", target.get_host(), target.get_port()),
    }
}
