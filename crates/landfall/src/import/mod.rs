//! Import: an outbox that is already there is moved into Landfall's own, row by row as it is present.
//!
//! ```text
//!   lease import/<table> ─▶ rows that are present, in their order ─▶ taken and enqueued in ONE transaction ─▶ the relay
//! ```
//!
//! One mover at a time works on a table: it holds the table's lease, and every transaction compares the epoch. Run one
//! beside every relay; the others wait for their turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{Holder, Import, ImportOrder, ImportSource, Lease, LeaseName, Leases, Mapping, Result};
use tokio_util::sync::CancellationToken;

/// Moves the rows of one table.
pub struct Importer {
    import: Box<dyn Import>,
    leases: Arc<dyn Leases>,
    lease: LeaseName,
    options: Options,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Rows moved in one transaction.
    pub batch: usize,
    /// How long a mover may be silent before another takes its place.
    pub lease_ttl: Duration,
    /// The longest pause between two looks at a table in which nothing happens.
    pub poll_max: Duration,
    /// Who holds the lease: must be new for every process.
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

/// The pause after the first failure of the database; it doubles up to the cap.
const TROUBLE_FIRST: Duration = Duration::from_millis(100);
const TROUBLE_CAP: Duration = Duration::from_secs(5);

impl Importer {
    /// Checks the mapping against the live table. Where nothing says in which order rows were written, that is logged
    /// once, here, as a warning.
    pub async fn new(
        source: &dyn ImportSource,
        leases: Arc<dyn Leases>,
        mapping: Mapping,
        options: Options,
    ) -> Result<Self> {
        let (table, lease) = (mapping.table.clone(), mapping.lease_name());
        let import = source.prepare_import(mapping).await?;
        match import.order() {
            ImportOrder::Known(order) => tracing::info!(%table, %order, "rows are imported"),
            ImportOrder::Guessed(warning) => {
                tracing::warn!(%table, "rows are imported without a known order: {warning}")
            }
        }
        Ok(Self { import, leases, lease, options })
    }

    pub fn order(&self) -> &ImportOrder {
        self.import.order()
    }

    /// Works until `stop` is cancelled, then gives its lease back. A database that cannot be reached is waited for.
    /// `Err` only for what no waiting mends, such as a column that was dropped.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut turn = Turn::default();
        let mut trouble = TROUBLE_FIRST;
        let mut idle = Duration::ZERO;
        let result = loop {
            if stop.is_cancelled() {
                break Ok(());
            }
            let pause = match self.step(&mut turn).await {
                Ok(Progress::Moved) => {
                    (idle, trouble) = (Duration::ZERO, TROUBLE_FIRST);
                    continue;
                }
                Ok(Progress::Idle) => {
                    trouble = TROUBLE_FIRST;
                    idle = (idle * 2).clamp(Duration::from_millis(1), self.options.poll_max);
                    idle
                }
                Ok(Progress::NotOurs) => self.renewal(),
                Err(error) if error.is_temporary() => {
                    tracing::warn!(lease = %self.lease.0, %error, pause = ?trouble, "nothing can be imported; waiting");
                    let pause = trouble;
                    trouble = (trouble * 2).min(TROUBLE_CAP);
                    pause
                }
                Err(error) => break Err(error),
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
        };
        if let Some(lease) = turn.lease
            && let Err(error) = self.leases.release(&[lease]).await
        {
            tracing::warn!(%error, "the lease of an import could not be given back; it ends by itself");
        }
        result
    }

    async fn step(&self, turn: &mut Turn) -> Result<Progress> {
        if turn.asked.is_none_or(|asked| asked.elapsed() >= self.renewal()) {
            turn.asked = Some(Instant::now());
            turn.lease = self.leases.acquire(&self.lease, &self.options.holder, self.options.lease_ttl).await?;
        }
        let Some(lease) = turn.lease.as_ref().filter(|lease| lease.is_live()) else {
            turn.asked = None;
            return Ok(Progress::NotOurs);
        };
        let imported = self.import.import(lease, self.options.batch).await?;
        fail::fail_point!("import.after-move");
        if imported.refused > 0 {
            let refused = imported.refused;
            tracing::error!(lease = %self.lease.0, refused, "rows that are no messages were moved; the relay parks them");
        }
        Ok(if imported.moved == 0 { Progress::Idle } else { Progress::Moved })
    }

    /// Often enough to renew twice before the lease ends, and to take over within a second.
    fn renewal(&self) -> Duration {
        (self.options.lease_ttl / 3).min(Duration::from_secs(1))
    }
}

/// Whether it is this mover's turn, and when it last asked.
#[derive(Default)]
struct Turn {
    lease: Option<Lease>,
    asked: Option<Instant>,
}

enum Progress {
    Moved,
    Idle,
    NotOurs,
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Importer").field("lease", &self.lease).field("options", &self.options).finish_non_exhaustive()
    }
}
