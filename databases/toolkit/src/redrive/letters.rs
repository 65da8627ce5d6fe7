//! The letters of a job, as operators read their outcomes.

use std::collections::BTreeSet;

use landfall_core::{DeadLetterId, JobFailure, JobLetter, JobLetterState, RedriveId, Result};

use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

/// Fingerprints per statement.
const CHUNK: usize = 250;

/// Implements [`Redrives::job_letters`](landfall_core::Redrives::job_letters).
pub async fn job_letters<D: LetterTables>(
    database: &D,
    id: RedriveId,
    state: Option<JobLetterState>,
    after: Option<DeadLetterId>,
    limit: usize,
) -> Result<Vec<JobLetter>> {
    let mut template = "SELECT dead_letter_id, state, detail, fingerprint FROM {p}redrive_item
        WHERE redrive_id = ? AND dead_letter_id > ?"
        .to_owned();
    let mut values = vec![Value::from(id.to_string()), after.unwrap_or(DeadLetterId::MIN).into()];
    if let Some(state) = state {
        template.push_str(" AND state = ?");
        values.push(state.as_str().into());
    }
    template.push_str(" ORDER BY dead_letter_id LIMIT ?");
    values.push((limit as u64).into());
    let columns = &[Column::Number, Column::Text, Column::Text, Column::Text];
    let rows = database.read(database.query("list the letters of a redrive job", &template, values, columns)).await?;
    let mut letters = rows.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    let failed: BTreeSet<String> = letters.iter().filter_map(|letter| letter.fingerprint.clone()).collect();
    let known = selected_fingerprints(database, id, &failed).await?;
    for letter in &mut letters {
        letter.failure = letter.fingerprint.as_ref().map(|fingerprint| match known.contains(fingerprint) {
            true => JobFailure::Same,
            false => JobFailure::New,
        });
    }
    Ok(letters)
}

fn read(mut row: Cells) -> Result<JobLetter> {
    let (dead_letter_id, state, detail) = (row.number()?, row.text()?.parse()?, row.text_or_null()?);
    let selected_fingerprint = row.text_or_null()?;
    let (skip, fingerprint) = match state {
        JobLetterState::Skipped => (detail, None),
        JobLetterState::Failed => (None, detail),
        _ => (None, None),
    };
    Ok(JobLetter { dead_letter_id, state, skip, failure: None, fingerprint, selected_fingerprint })
}

/// Returns those of `fingerprints` that a letter of the job had when it was selected.
pub(super) async fn selected_fingerprints<D: LetterTables>(
    database: &D,
    id: RedriveId,
    fingerprints: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    let fingerprints: Vec<&String> = fingerprints.iter().collect();
    for chunk in fingerprints.chunks(CHUNK) {
        let list = placeholders(chunk.len());
        let template = format!(
            "SELECT DISTINCT fingerprint FROM {{p}}redrive_item WHERE redrive_id = ? AND fingerprint IN ({list})"
        );
        let mut values = vec![Value::from(id.to_string())];
        values.extend(chunk.iter().map(|fingerprint| Value::from(fingerprint.as_str())));
        let query = database.query("compare fingerprints", &template, values, &[Column::Text]);
        for mut row in database.read(query).await? {
            known.insert(row.text()?);
        }
    }
    Ok(known)
}
