//! Landfall's outbox, inbox, leases and dead letters on MariaDB (10.6 or newer) and MySQL (8.0.17 or newer), for
//! transactions of sqlx.
//!
//! [`MySql`] implements every database port of `landfall-core`. It is cheap to clone; clones share one pool.
//!
//! * `migrations/`: the tables. `schema.rs` applies them, and resumes an interrupted migration.
//! * `statements.rs`: every statement. The table prefix is the only text that is ever pasted into SQL.
//! * `connection/`: pool checks, transactions, deadlock retries, error numbers.
//! * `outbox/`: for senders, relays and operators.
//! * `inbox/`, `dead_letter.rs`, `delivery.rs`, `lease.rs`, `housekeeping.rs`, `import/`, `doctor/`: the other ports.
//!
//! Every transaction is READ COMMITTED: the gap locks of the server's default level would make writers wait for relays.
//! No statement uses `RETURNING`, which MySQL does not have: rows are locked, then changed. Times are compared on the
//! server's clock in UTC. This process's clock only measures how long its own leases last.

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
mod sql;
mod statements;
mod timestamp;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{ConnectionEpoch, DatabaseCapabilities};
use landfall_core::{Error, Limits, Result, TablePrefix};
use landfall_sql_toolkit::{Server, pool_options, probe};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{MySqlConnection, MySqlPool};
use tokio::sync::OnceCell;

use crate::connection::error::{self, ErrorNumber};
pub use crate::connection::reset_if_desynced;
pub use crate::connection::transaction::Transaction;
use crate::signals::Signals;
use crate::statements::Statements;

/// Options of the tables and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Prefix of every table's name, with an optional database.
    pub prefix: TablePrefix,
    pub limits: Limits,
    /// Size of the pool that [`MySql::connect`] creates, at least two.
    pub max_connections: u32,
    /// How long sent messages are kept, in `landfall_outbox_sent`; `None` deletes them at once. A call of
    /// [`Housekeeping::remove_expired`](landfall_core::Housekeeping::remove_expired) removes kept messages.
    pub keep_sent: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { prefix: TablePrefix::default(), limits: Limits::default(), max_connections: 10, keep_sent: None }
    }
}

/// A MariaDB or MySQL database with Landfall's tables in it.
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_core::Schema;
/// use landfall_mysql::{Options, MySql};
///
/// let options = Options { max_connections: 20, ..Options::default() };
/// let database = MySql::connect("mysql://shop:secret@db/shop", options).await?;
/// database.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MySql {
    inner: Arc<Inner>,
}

struct Inner {
    pool: MySqlPool,
    prefix: TablePrefix,
    limits: Limits,
    server: Server<ErrorNumber>,
    keeps_sent: bool,
    statements: Statements,
    signals: Signals,
    /// The server's `max_allowed_packet`, once it was needed.
    packet_bytes: OnceCell<usize>,
}

impl MySql {
    pub const CAPABILITIES: DatabaseCapabilities =
        DatabaseCapabilities { concurrent_writers: true, wakes_across_processes: false, competing_relays: true };

    /// Connects to `mysql://user:password@host:port/database`, or the same with `mariadb://`.
    ///
    /// Fails within five seconds, with kind `Unavailable`, if the server does not answer. Does not check the tables;
    /// call `Schema::check` or `Schema::migrate`.
    pub async fn connect(url: &str, options: Options) -> Result<Self> {
        let target: MySqlConnectOptions = url.parse().map_err(|error: sqlx::Error| {
            Error::invalid("the database URL is not of the form mysql://user:password@host:port/database")
                .with_source(error)
        })?;
        let epoch = Arc::new(ConnectionEpoch::default());
        let server = Server::new(address(&target), Some(epoch.clone()));
        probe::<_, MySqlConnection>(&server, &target).await?;
        let max_connections = options.max_connections.max(2);
        let pool = pool_options(max_connections, epoch, |connection| Box::pin(reset_if_desynced(connection)));
        Ok(Self::new(pool.connect_lazy_with(target), options, server))
    }

    /// Uses the application's own pool and leaves its size and timeouts as they are; `max_connections` is ignored. Such
    /// a pool should check returned connections with [`reset_if_desynced()`].
    pub fn from_pool(pool: MySqlPool, options: Options) -> Self {
        let server = Server::new(address(&pool.connect_options()), None);
        Self::new(pool, options, server)
    }

    fn new(pool: MySqlPool, options: Options, server: Server<ErrorNumber>) -> Self {
        let Options { prefix, limits, max_connections: _, keep_sent } = options;
        let inner = Inner {
            statements: Statements::new(&prefix),
            signals: Signals::default(),
            packet_bytes: OnceCell::new(),
            keeps_sent: keep_sent.is_some_and(|time| !time.is_zero()),
            pool,
            prefix,
            limits,
            server,
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

    /// For `map_err`: `what` completes "MySQL at … could not …".
    fn could_not(&self, what: &'static str) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        self.inner.server.could_not(what)
    }

    fn could_not_commit(&self) -> impl FnOnce(sqlx::Error) -> Error + '_ {
        |error| error::could_not_commit(&self.inner.server, error)
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { server, prefix, .. } = &*self.inner;
        f.debug_struct("MySql").field("address", &server.address()).field("prefix", prefix).finish_non_exhaustive()
    }
}

fn address(target: &MySqlConnectOptions) -> String {
    let database = target.get_database().unwrap_or_default();
    match target.get_socket() {
        Some(socket) => format!("{}/{database}", socket.display()),
        None => format!("{}:{}/{database}", target.get_host(), target.get_port()),
    }
}
