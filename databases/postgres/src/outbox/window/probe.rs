//! A cheap check whether an idle outbox has anything new, instead of a read.
//!
//! After a read that found nothing, a row can become visible in two ways. Its transaction was in progress at that read
//! and has ended since. Or its transaction drew an id later, and the highest id has changed. A transaction that drew
//! its id before the read had its transaction id by then: it is among those in progress, or has ended.

use std::time::{Duration, Instant};

use landfall_core::{Result, RowId};
use sqlx::Row;
use uuid::Uuid;

use super::{Cursor, Snapshot};
use crate::Postgres;

/// A read is due after this time, whatever the probes say.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The outbox at a read that found nothing.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// The highest id drawn before that read began, if a probe preceded it.
    top: Option<RowId>,
    since: Instant,
}

impl Cursor {
    /// Records a read that found nothing to send, and no key that may be blocked.
    pub(crate) fn found_nothing(&mut self) {
        let is_closed = self.windows.iter().all(|window| window.open.is_none() && window.settled_ahead.is_empty());
        let top = self.probed_top.take();
        self.quiet = is_closed.then(|| Quiet { top, since: Instant::now() });
    }

    /// Returns whether a transaction that was in progress at the last read has ended by `now`.
    fn has_ended_transactions(&self, now: &Snapshot) -> bool {
        self.windows.iter().any(|window| window.lower.in_progress().iter().any(|xid| now.is_visible(*xid)))
    }
}

impl Postgres {
    /// Returns whether nothing can have become visible since a read that found nothing. Otherwise the caller must read.
    pub(crate) async fn is_still_quiet(&self, cursor: &mut Cursor) -> Result<bool> {
        cursor.probed_top = None;
        let Some(quiet) = &cursor.quiet else { return Ok(false) };
        let doing = "probe the outbox";
        let row = self.row(doing, self.query(&self.statements().probe)).await?;
        let top: RowId = row.try_get("top").map_err(self.could_not(doing))?;
        let any_blocked: bool = row.try_get("blocked").map_err(self.could_not(doing))?;
        let incarnation: Option<Uuid> = row.try_get("token").map_err(self.could_not(doing))?;
        let now = Snapshot::parse(row.try_get("now").map_err(self.could_not(doing))?)?;
        let is_quiet = quiet.top == Some(top)
            && quiet.since.elapsed() < READ_EVERY
            && !any_blocked
            && incarnation == Some(cursor.incarnation)
            && !cursor.has_ended_transactions(&now);
        cursor.probed_top = Some(top);
        Ok(is_quiet)
    }
}
