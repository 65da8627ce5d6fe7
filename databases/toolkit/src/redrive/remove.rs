//! Removes jobs that ended long ago.

use landfall_core::{Result, Timestamp};

use crate::portable::{Column, LetterTables, Value};

/// Jobs that are looked at in one call.
const JOBS: u64 = 50;

const DOING: &str = "remove old redrive jobs";

/// Implements [`RedriveQueue::remove_redrives`](landfall_core::RedriveQueue::remove_redrives).
pub async fn remove<D: LetterTables>(database: &D, before: Timestamp, at_most: usize) -> Result<u64> {
    let template = "SELECT id FROM {p}redrive
        WHERE state IN ('stopped', 'finished') AND in_flight = 0 AND updated_at < ? ORDER BY updated_at, id LIMIT ?";
    let values = vec![before.as_millis().into(), JOBS.into()];
    let jobs = database.read(database.query(DOING, template, values, &[Column::Text])).await?;
    let (at_most, mut removed) = (at_most as u64, 0);
    for mut job in jobs {
        if removed >= at_most {
            break;
        }
        removed += remove_part(database, &job.text()?, at_most - removed).await?;
    }
    Ok(removed)
}

/// Removes letters of a job, and the job itself with the last ones.
async fn remove_part<D: LetterTables>(database: &D, job: &str, at_most: u64) -> Result<u64> {
    let template = "SELECT dead_letter_id FROM {p}redrive_item WHERE redrive_id = ? ORDER BY dead_letter_id LIMIT ?";
    let values = vec![job.into(), at_most.into()];
    let letters = database.read(database.query(DOING, template, values, &[Column::Number])).await?;
    let is_last = (letters.len() as u64) < at_most;
    let mut transaction = database.begin().await?;
    let mut removed = 0;
    if let Some(mut last) = letters.into_iter().next_back() {
        let template = "DELETE FROM {p}redrive_item WHERE redrive_id = ? AND dead_letter_id <= ?";
        let values = vec![Value::from(job), last.number()?.into()];
        removed += database.execute(&mut transaction, database.statement(DOING, template, values)).await?;
    }
    if is_last {
        let template = "DELETE FROM {p}redrive WHERE id = ?";
        let values = vec![job.into()];
        removed += database.execute(&mut transaction, database.statement(DOING, template, values)).await?;
    }
    database.commit(transaction).await?;
    Ok(removed)
}
