//! Records what became of the letters that were handed back.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::adapter::{Epoch, StoredError};
use landfall_core::{ActiveRedrive, DeadLetterId, RedriveId, RedriveState, Result, StopRule};

use super::{LockedJob, RUNNER, audit_job, lock_job, now};
use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

/// Letters per statement.
const CHUNK: usize = 500;

/// The letters in flight. `u.id` is set while a letter of the relay is back in the outbox and not yet published.
const IN_FLIGHT: &str = "
    SELECT i.dead_letter_id, l.status, {number:l.discarded}, l.redrive_id, u.id, l.fingerprint, l.error_code, l.error
    FROM {p}redrive_item i
    LEFT JOIN {p}dead_letter l ON l.id = i.dead_letter_id
    LEFT JOIN {p}{unsent} u ON u.id = l.outbox_id AND l.consumer_group = ''
    WHERE i.redrive_id = ? AND i.state = 'dispatched'";

const IN_FLIGHT_COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[Number, Text, Number, Text, Number, Text, Text, Text]
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    Failed,
    Missing,
}

impl Outcome {
    const ALL: [Outcome; 3] = [Self::Succeeded, Self::Failed, Self::Missing];

    fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

/// A letter that is no longer in flight.
struct Settled {
    id: DeadLetterId,
    outcome: Outcome,
    /// The fingerprint of its error, if it failed in this job.
    fingerprint: Option<String>,
}

/// Implements [`RedriveQueue::settle_redrive`](landfall_core::RedriveQueue::settle_redrive).
pub async fn settle<D: LetterTables>(
    database: &D,
    id: RedriveId,
    epoch: Epoch,
    rule: &StopRule,
) -> Result<ActiveRedrive> {
    let mut transaction = database.begin().await?;
    let connection = &mut *transaction;
    let LockedJob { mut job, .. } = lock_job(database, connection, id, epoch).await?;
    let query = database.query("read letters in flight", IN_FLIGHT, vec![id.to_string().into()], IN_FLIGHT_COLUMNS);
    let rows = database.fetch(connection, query).await?;
    let settled = rows.into_iter().filter_map(|row| read(row, id).transpose()).collect::<Result<Vec<_>>>()?;
    for outcome in Outcome::ALL {
        let mut of: BTreeMap<Option<&str>, Vec<DeadLetterId>> = BTreeMap::new();
        for letter in settled.iter().filter(|letter| letter.outcome == outcome) {
            of.entry(letter.fingerprint.as_deref()).or_default().push(letter.id);
        }
        for (fingerprint, letters) in of {
            mark(database, connection, id, &letters, (outcome, fingerprint)).await?;
            count(&mut job, outcome, letters.len() as u64);
        }
    }
    let new = new_fingerprint(database, connection, id, &settled).await?;
    let (state, reason) = next_state(&job, rule, new.as_deref());
    let has_changed = state != job.state;
    if settled.is_empty() && !has_changed {
        database.commit_seen(transaction).await?;
        return Ok(job);
    }
    job.state = state;
    store(database, connection, &job, reason.as_deref().filter(|_| has_changed)).await?;
    if has_changed {
        let action = if state == RedriveState::Stopped { "redrive-stop" } else { "redrive-finish" };
        audit_job(database, connection, id, RUNNER, action, reason.as_deref().unwrap_or_default()).await?;
    }
    database.commit(transaction).await?;
    Ok(job)
}

/// Returns what became of a letter; `None` while it is in flight.
///
/// Only a parked letter is redriven, discarded or ignored. So a letter that another redrive has changed since, or that
/// was discarded, had been parked again: it failed.
fn read(mut row: Cells, job: RedriveId) -> Result<Option<Settled>> {
    let id = row.number()?;
    let (status, is_discarded) = (row.text_or_null()?, row.number_or_null()? == Some(1));
    let (redrive, unsent) = (row.text_or_null()?, row.number_or_null()?);
    let stored = StoredError { fingerprint: row.text_or_null()?, causes: None };
    let is_ours = redrive.is_some_and(|redrive| redrive == job.to_string());
    let outcome = match status.as_deref() {
        None => Outcome::Missing,
        Some(_) if !is_ours => Outcome::Failed,
        Some("done") if is_discarded => Outcome::Failed,
        Some("done") if unsent.is_some() => return Ok(None),
        Some("done") => Outcome::Succeeded,
        Some("parked") => Outcome::Failed,
        Some(_) => return Ok(None),
    };
    let fingerprint = match (outcome, row.text_or_null()?, row.text_or_null()?) {
        (Outcome::Failed, Some(code), Some(error)) if is_ours => Some(stored.fingerprint(&code, &error)),
        _ => None,
    };
    Ok(Some(Settled { id, outcome, fingerprint }))
}

async fn mark<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    letters: &[DeadLetterId],
    (outcome, fingerprint): (Outcome, Option<&str>),
) -> Result<()> {
    for chunk in letters.chunks(CHUNK) {
        let template = format!(
            "UPDATE {{p}}redrive_item {{primary}} SET state = ?, detail = ?
             WHERE redrive_id = ? AND state = 'dispatched' AND dead_letter_id IN ({})",
            placeholders(chunk.len())
        );
        let fingerprint = Value::Text(fingerprint.map(str::to_owned));
        let mut values = vec![outcome.as_str().into(), fingerprint, id.to_string().into()];
        values.extend(chunk.iter().map(|letter| Value::from(*letter)));
        database.execute(connection, database.statement("record outcomes", &template, values)).await?;
    }
    Ok(())
}

fn count(job: &mut ActiveRedrive, outcome: Outcome, letters: u64) {
    job.in_flight = job.in_flight.saturating_sub(letters);
    job.counts.remaining = job.counts.remaining.saturating_sub(letters);
    match outcome {
        Outcome::Succeeded => job.counts.succeeded += letters,
        Outcome::Failed => job.counts.failed += letters,
        Outcome::Missing => job.counts.missing += letters,
    }
}

/// Returns the fingerprint of an error that none of the selected letters had.
async fn new_fingerprint<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    settled: &[Settled],
) -> Result<Option<String>> {
    let fingerprints: BTreeSet<&String> = settled.iter().filter_map(|letter| letter.fingerprint.as_ref()).collect();
    for fingerprint in fingerprints {
        let template = "SELECT count(*) FROM {p}redrive_item WHERE redrive_id = ? AND fingerprint = ?";
        let values = vec![id.to_string().into(), fingerprint.as_str().into()];
        let query = database.query("compare fingerprints", template, values, &[Column::Number]);
        let mut known = 0;
        for mut row in database.fetch(connection, query).await? {
            known += row.count()?;
        }
        if known == 0 {
            return Ok(Some(fingerprint.clone()));
        }
    }
    Ok(None)
}

/// Returns the state that follows, and why a job is stopped.
fn next_state(job: &ActiveRedrive, rule: &StopRule, new: Option<&str>) -> (RedriveState, Option<String>) {
    let is_open = matches!(job.state, RedriveState::Running | RedriveState::Paused);
    if !is_open {
        return (job.state, None);
    }
    if job.counts.remaining == 0 {
        return (RedriveState::Finished, None);
    }
    match rule.reason(&job.counts, new) {
        Some(reason) => (RedriveState::Stopped, Some(reason)),
        None => (job.state, None),
    }
}

async fn store<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    job: &ActiveRedrive,
    stop_reason: Option<&str>,
) -> Result<()> {
    let template = "UPDATE {p}redrive SET state = ?, succeeded = ?, failed = ?, missing = ?, in_flight = ?,
            stop_reason = coalesce(?, stop_reason), updated_at = ?
        WHERE id = ?";
    let counts = job.counts;
    let values = vec![
        job.state.as_str().into(),
        counts.succeeded.into(),
        counts.failed.into(),
        counts.missing.into(),
        job.in_flight.into(),
        Value::Text(stop_reason.map(str::to_owned)),
        now(),
        job.id.to_string().into(),
    ];
    database.execute(connection, database.statement("record outcomes", template, values)).await?;
    Ok(())
}
