//! Pause, resume and stop.

use landfall_core::{Error, ErrorKind, RedriveControl, RedriveId, RedriveJob, RedriveState, Result};

use super::{audit_job, missing_job, now, view};
use crate::audit::storable_text;
use crate::portable::{Column, LetterTables, Value};

/// Implements [`Redrives::control_redrive_because`](landfall_core::Redrives::control_redrive_because).
pub async fn control<D: LetterTables>(
    database: &D,
    id: RedriveId,
    control: RedriveControl,
    reason: &str,
    actor: &str,
) -> Result<RedriveJob> {
    let doing = "change a redrive job";
    let mut transaction = database.begin().await?;
    let template = "SELECT state FROM {p}redrive WHERE id = ?{lock}";
    let query = database.query(doing, template, vec![id.to_string().into()], &[Column::Text]);
    let mut rows = database.fetch(&mut transaction, query).await?;
    let state: RedriveState = rows.pop().ok_or_else(|| missing_job(id))?.text()?.parse()?;
    let next = control.apply(state).ok_or_else(|| {
        let text = format!("redrive {id} is {}, which cannot be changed by {}", state.as_str(), control.as_str());
        Error::new(ErrorKind::Conflict, text)
    })?;
    if next == state {
        database.commit_seen(transaction).await?;
    } else {
        let reason = storable_text(reason);
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let stopped = (next == RedriveState::Stopped).then(|| format!("stopped by {actor}{why}"));
        let template = "UPDATE {p}redrive SET state = ?, stop_reason = ?, updated_at = ? WHERE id = ?";
        let values = vec![next.as_str().into(), Value::Text(stopped), now(), id.to_string().into()];
        database.execute(&mut transaction, database.statement(doing, template, values)).await?;
        let action = format!("redrive-{}", control.as_str());
        audit_job(database, &mut transaction, id, actor, &action, &reason).await?;
        database.commit(transaction).await?;
    }
    view::job(database, id).await?.ok_or_else(|| missing_job(id))
}
