//! Redrive jobs, on any server: a job is a row of `redrive`, its letters are rows of `redrive_item`.
//!
//! Every change locks the job's row first. So a job that was paused or stopped hands back nothing more, and a runner
//! whose lease was taken over changes nothing: the row has the epoch of its successor.

mod at_once;
mod control;
mod dispatch;
mod letters;
mod rehearse;
mod remove;
mod settle;
mod start;
mod view;

pub use at_once::at_once;
pub use control::control;
pub use dispatch::dispatch;
pub use letters::job_letters;
pub use rehearse::rehearse;
pub use remove::remove;
pub use settle::settle;
pub use start::start;
pub use view::{active, job, jobs, skips};

use landfall_core::adapter::Epoch;
use landfall_core::{ActiveRedrive, Error, ErrorKind, RedriveId, RedriveOptions, RedriveState, Result, Timestamp};

use crate::audit::storable_actor;
use crate::portable::{Cells, Column, LetterTables, Value};

/// The actor of changes that a job makes to itself.
const RUNNER: &str = "redrive";

/// The columns that [`active_job`] reads.
const ACTIVE: &str =
    "id, state, lane, rate_per_s, concurrency, ramp, matched, succeeded, failed, skipped, missing, in_flight";
const ACTIVE_COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[Text, Text, Text, Number, Number, Number, Number, Number, Number, Number, Number, Number, Number, Text, Text]
};

/// A job whose row is locked.
struct LockedJob {
    job: ActiveRedrive,
    /// The person on whose behalf it runs.
    actor: String,
    /// Why that person started it.
    reason: String,
}

/// Locks a job for a runner, under the epoch of its lease.
async fn lock_job<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    epoch: Epoch,
) -> Result<LockedJob> {
    let doing = "lock a redrive job";
    let template = format!("SELECT {ACTIVE}, epoch, actor, reason FROM {{p}}redrive WHERE id = ?{{lock}}");
    let query = database.query(doing, &template, vec![id.to_string().into()], ACTIVE_COLUMNS);
    let mut rows = database.fetch(connection, query).await?;
    let mut row = rows.pop().ok_or_else(|| missing_job(id))?;
    let job = active_job(&mut row)?;
    let (known, actor, reason) = (row.number()?, row.text()?, row.text()?);
    if known > epoch {
        let text = format!("redrive {id} belongs to a runner with epoch {known}, and this one has {epoch}");
        return Err(Error::new(ErrorKind::Conflict, text));
    }
    if known < epoch {
        let template = "UPDATE {p}redrive SET epoch = ? WHERE id = ?";
        let values = vec![epoch.into(), id.to_string().into()];
        database.execute(connection, database.statement(doing, template, values)).await?;
    }
    Ok(LockedJob { job, actor, reason })
}

fn active_job(row: &mut Cells) -> Result<ActiveRedrive> {
    let id = row.text()?.parse()?;
    let state: RedriveState = row.text()?.parse()?;
    let options = options(row)?;
    let counts = view::counts(row)?;
    Ok(ActiveRedrive { id, state, options, counts, in_flight: row.count()? })
}

fn options(row: &mut Cells) -> Result<RedriveOptions> {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(RedriveOptions {
        lane: row.text()?.parse()?,
        rate_per_s: row.number_or_null()?.map(|rate| small(rate.unsigned_abs())),
        concurrency: small(row.count()?),
        ramp: row.number()? != 0,
    })
}

fn missing_job(id: RedriveId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no redrive {id}"))
}

/// Writes what happened to a job to the audit trail, in the caller's transaction.
async fn audit_job<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    actor: &str,
    action: &str,
    detail: &str,
) -> Result<()> {
    let template = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?, ?, {uuid}, ?)";
    let values: Vec<Value> = vec![storable_actor(actor).into(), action.into(), id.to_string().into(), detail.into()];
    database.execute(connection, database.statement("write the audit trail", template, values)).await?;
    Ok(())
}

fn now() -> Value {
    Timestamp::now().as_millis().into()
}
