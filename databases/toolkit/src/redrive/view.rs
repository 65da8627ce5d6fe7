//! Jobs as operators and the runner see them.

use landfall_core::{ActiveRedrive, RedriveCounts, RedriveId, RedriveJob, Result, Timestamp};

use super::{ACTIVE, active_job, options};
use crate::portable::{Cells, Column, LetterTables};

const JOB: &str =
    "SELECT id, state, matched, succeeded, failed, skipped, missing, lane, rate_per_s, concurrency, ramp, selection,
    actor, reason, stop_reason, created_at, updated_at FROM {p}redrive";

const JOB_COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[
        Text, Text, Number, Number, Number, Number, Number, Text, Number, Number, Number, Text, Text, Text, Text,
        Number, Number,
    ]
};

/// Implements [`Redrives::redrive_jobs`](landfall_core::Redrives::redrive_jobs).
pub async fn jobs<D: LetterTables>(database: &D, before: Option<RedriveId>, limit: usize) -> Result<Vec<RedriveJob>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX).into();
    let (condition, values) = match before {
        // Ids that senders chose are in no order, so the time comes first.
        Some(before) => {
            let older = "WHERE created_at < (SELECT b.created_at FROM {p}redrive b WHERE b.id = ?)
                OR (created_at = (SELECT b.created_at FROM {p}redrive b WHERE b.id = ?) AND id < ?)";
            let before = || before.to_string().into();
            (older, vec![before(), before(), before(), limit])
        }
        None => ("", vec![limit]),
    };
    let template = format!("{JOB} {condition} ORDER BY created_at DESC, id DESC LIMIT ?");
    let rows = database.read(database.query("list redrive jobs", &template, values, JOB_COLUMNS)).await?;
    rows.into_iter().map(read_job).collect()
}

/// Implements [`Redrives::redrive_job`](landfall_core::Redrives::redrive_job).
pub async fn job<D: LetterTables>(database: &D, id: RedriveId) -> Result<Option<RedriveJob>> {
    let template = format!("{JOB} WHERE id = ?");
    let query = database.query("read a redrive job", &template, vec![id.to_string().into()], JOB_COLUMNS);
    database.read(query).await?.pop().map(read_job).transpose()
}

/// Implements [`Redrives::redrive_skips`](landfall_core::Redrives::redrive_skips).
pub async fn skips<D: LetterTables>(database: &D, id: RedriveId) -> Result<Vec<(String, u64)>> {
    let template = "SELECT coalesce(detail, ''), count(*) FROM {p}redrive_item
        WHERE redrive_id = ? AND state = 'skipped' GROUP BY coalesce(detail, '') ORDER BY 1";
    let columns = &[Column::Text, Column::Number];
    let query = database.query("count skipped letters", template, vec![id.to_string().into()], columns);
    let rows = database.read(query).await?;
    rows.into_iter().map(|mut row| Ok((row.text()?, row.count()?))).collect()
}

/// Implements [`RedriveQueue::active_redrives`](landfall_core::RedriveQueue::active_redrives).
pub async fn active<D: LetterTables>(database: &D) -> Result<Vec<ActiveRedrive>> {
    let template =
        format!("SELECT {ACTIVE} FROM {{p}}redrive WHERE state = 'running' OR in_flight > 0 ORDER BY created_at, id");
    let columns = &super::ACTIVE_COLUMNS[..12];
    let rows = database.read(database.query("list active redrive jobs", &template, Vec::new(), columns)).await?;
    rows.into_iter().map(|mut row| active_job(&mut row)).collect()
}

/// Reads the five counts, and what remains of `matched`.
pub(super) fn counts(row: &mut Cells) -> Result<RedriveCounts> {
    let (matched, succeeded, failed) = (row.count()?, row.count()?, row.count()?);
    let (skipped, missing) = (row.count()?, row.count()?);
    let counts = RedriveCounts { matched, succeeded, failed, skipped, missing, remaining: 0 };
    Ok(RedriveCounts { remaining: matched.saturating_sub(counts.settled()), ..counts })
}

fn read_job(mut row: Cells) -> Result<RedriveJob> {
    Ok(RedriveJob {
        id: row.text()?.parse()?,
        state: row.text()?.parse()?,
        counts: counts(&mut row)?,
        options: options(&mut row)?,
        selection: serde_json::from_str(&row.text()?).unwrap_or_default(),
        actor: row.text()?,
        reason: row.text()?,
        stop_reason: row.text_or_null()?,
        created_at: Timestamp::from_millis(row.number()?),
        updated_at: Timestamp::from_millis(row.number()?),
    })
}
