//! Import: moves the rows of an existing outbox table into Landfall's own.
//!
//! ```text
//!   lease import/<table> ─▶ visible rows, in order ─▶ removed and enqueued in ONE transaction ─▶ the relay
//! ```
//!
//! One importer at a time works on a table: it holds the table's lease, and every transaction compares the epoch. Run
//! one beside every relay; the others stand by.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::adapter::{Import, Lease, LeaseName};
use landfall_core::{Holder, Leases, Result};
use tokio_util::sync::CancellationToken;

pub use landfall_core::{
    ColumnName, HeaderColumn, ImportOrder, ImportSource, Mapping, TableName, Taken, TopicTemplate,
};

/// Imports the rows of one table.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::import::{Importer, Mapping, Options, TableName};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Arc::new(Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?);
/// database.migrate().await?;
/// # let table = "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload)";
/// # sqlx::query(table).execute(database.pool()).await?;
/// let mapping = Mapping::debezium(TableName::new("outbox")?)?;
/// let importer = Importer::new(&*database, database.clone(), mapping, Options::default()).await?;
/// let stop = CancellationToken::new();
/// # stop.cancel();
/// importer.run(stop).await?;
/// # Ok(())
/// # }
/// ```
pub struct Importer {
    import: Box<dyn Import>,
    leases: Arc<dyn Leases>,
    lease: LeaseName,
    options: Options,
}

/// How an importer reads the table.
///
/// ```
/// use landfall::import::Options;
///
/// let options = Options { batch: 100, ..Options::default() };
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of rows moved in one transaction.
    pub batch: usize,
    /// How long the lease lasts. After an importer dies, another takes over within this time.
    pub lease_ttl: Duration,
    /// The longest interval between two polls of an idle table.
    pub poll_max: Duration,
    /// The holder of the lease: unique for every process.
    pub holder: Holder,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch: 500,
            lease_ttl: Duration::from_secs(10),
            poll_max: Duration::from_millis(100),
            holder: Holder(format!("import-{}-{:08x}", std::process::id(), rand::random::<u32>())),
        }
    }
}

/// The pause after the first database error; it doubles up to the cap.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_CAP: Duration = Duration::from_secs(5);

impl Importer {
    /// Checks the mapping against the live table. Logs a warning if no column gives the order in which rows were
    /// written.
    pub async fn new(
        source: &dyn ImportSource,
        leases: Arc<dyn Leases>,
        mapping: Mapping,
        options: Options,
    ) -> Result<Self> {
        let (table, lease) = (mapping.table.clone(), mapping.lease_name());
        let import = source.prepare_import(mapping).await?;
        match import.order() {
            ImportOrder::Known(order) => tracing::info!(%table, %order, "importing rows"),
            ImportOrder::Guessed(warning) => {
                tracing::warn!(%table, "importing rows without a known order: {warning}")
            }
        }
        Ok(Self { import, leases, lease, options })
    }

    /// The order in which rows are imported.
    pub fn order(&self) -> &ImportOrder {
        self.import.order()
    }

    /// Works until `stop` is cancelled, then releases its lease. While the database is unavailable the importer backs
    /// off. Fails only on errors that are not temporary, such as a dropped column.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut leadership = Leadership::default();
        let mut backoff = BACKOFF_FIRST;
        let mut idle = Duration::ZERO;
        let result = loop {
            if stop.is_cancelled() {
                break Ok(());
            }
            let pause = match self.step(&mut leadership).await {
                Ok(Progress::Moved) => {
                    (idle, backoff) = (Duration::ZERO, BACKOFF_FIRST);
                    continue;
                }
                Ok(Progress::Idle) => {
                    backoff = BACKOFF_FIRST;
                    idle = (idle * 2).clamp(Duration::from_millis(1), self.options.poll_max);
                    idle
                }
                Ok(Progress::Standby) => self.renewal(),
                Err(error) if error.is_temporary() => {
                    let lease = &self.lease.0;
                    tracing::warn!(%lease, %error, pause = ?backoff, "import table unavailable, backing off");
                    let pause = backoff;
                    backoff = (backoff * 2).min(BACKOFF_CAP);
                    pause
                }
                Err(error) => break Err(error),
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
        };
        if let Some(lease) = leadership.lease
            && let Err(error) = self.leases.release(&[lease]).await
        {
            tracing::warn!(%error, "import lease not released; it will expire");
        }
        result
    }

    async fn step(&self, leadership: &mut Leadership) -> Result<Progress> {
        if leadership.requested.is_none_or(|requested| requested.elapsed() >= self.renewal()) {
            leadership.requested = Some(Instant::now());
            leadership.lease = self.leases.acquire(&self.lease, &self.options.holder, self.options.lease_ttl).await?;
        }
        let Some(lease) = leadership.lease.as_ref().filter(|lease| lease.is_live()) else {
            leadership.requested = None;
            return Ok(Progress::Standby);
        };
        let imported = self.import.import(lease, self.options.batch).await?;
        fail::fail_point!("import.after-move");
        if imported.refused > 0 {
            let refused = imported.refused;
            let lease = &self.lease.0;
            tracing::error!(%lease, refused, "imported rows that are not valid messages; the relay parks them");
        }
        Ok(if imported.moved == 0 { Progress::Idle } else { Progress::Moved })
    }

    /// Often enough to renew twice before the lease expires, and to take over within a second.
    fn renewal(&self) -> Duration {
        (self.options.lease_ttl / 3).min(Duration::from_secs(1))
    }
}

/// The table's lease if this importer holds it, and when it was last requested.
#[derive(Default)]
struct Leadership {
    lease: Option<Lease>,
    requested: Option<Instant>,
}

enum Progress {
    Moved,
    Idle,
    /// Another importer holds the lease.
    Standby,
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("lease", &self.lease).field("options", &self.options).finish_non_exhaustive()
    }
}
