//! Predicts what a job would do, without running a handler.

use std::collections::{HashMap, HashSet};

use landfall_core::{
    DeadLetterId, DeadLetterStatus, Predicted, Prediction, RedriveGuards, RedriveSelection, Result, Skip, Timestamp,
};

use super::dispatch::{LETTER_COLUMNS, Letter, letter_columns, read_waiting};
use super::start::select;
use crate::portable::{Column, LetterTables, Value, placeholders};

/// Letters per statement.
const CHUNK: usize = 250;

/// Implements [`Redrives::rehearse_redrive`](landfall_core::Redrives::rehearse_redrive).
pub async fn rehearse<D: LetterTables>(
    database: &D,
    selection: &RedriveSelection,
    guards: &RedriveGuards,
    limit: usize,
) -> Result<Vec<Prediction>> {
    selection.check()?;
    let mut transaction = database.begin().await?;
    let connection = &mut *transaction;
    let selected = select(database, connection, selection).await?;
    let ids: Vec<DeadLetterId> = selected.into_iter().map(|(id, _)| id).collect();
    let known: HashSet<DeadLetterId> = ids.iter().copied().collect();
    let mut predictions = Vec::new();
    for chunk in ids[..limit.min(ids.len())].chunks(CHUNK) {
        let mut letters = read(database, connection, chunk).await?;
        let in_front: HashSet<DeadLetterId> = letters.values().filter_map(|letter| letter.predecessor).collect();
        let statuses = statuses(database, connection, in_front).await?;
        for id in chunk {
            let letter = letters.remove(id);
            let predecessor = letter.as_ref().and_then(|letter| letter.predecessor);
            let may_end = predecessor.is_none_or(|predecessor| {
                known.contains(&predecessor) || statuses.get(&predecessor) != Some(&DeadLetterStatus::Parked)
            });
            predictions.push(Prediction { id: *id, outcome: predict(letter, may_end, guards), predecessor });
        }
    }
    database.commit_seen(transaction).await?;
    Ok(predictions)
}

fn predict(letter: Option<Letter>, may_end: bool, guards: &RedriveGuards) -> Predicted {
    let Some(letter) = letter else { return Predicted::Missing };
    match letter.refuse(guards, Timestamp::now()) {
        Some(skip) => Predicted::Skipped(skip),
        None if letter.predecessor.is_none() => Predicted::Ready,
        None if may_end => Predicted::Waits,
        None => Predicted::Skipped(Skip::Predecessor),
    }
}

pub(super) async fn read<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    ids: &[DeadLetterId],
) -> Result<HashMap<DeadLetterId, Letter>> {
    let list = placeholders(ids.len());
    let template = format!("SELECT l.id, {} FROM {{p}}dead_letter l WHERE l.id IN ({list})", letter_columns());
    let values = ids.iter().map(|id| Value::from(*id)).collect();
    let query = database.query("rehearse a redrive", &template, values, LETTER_COLUMNS);
    let mut letters = HashMap::new();
    for row in database.fetch(connection, query).await? {
        let found = read_waiting(row)?;
        letters.extend(found.letter.map(|letter| (found.id, letter)));
    }
    Ok(letters)
}

pub(super) async fn statuses<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    ids: HashSet<DeadLetterId>,
) -> Result<HashMap<DeadLetterId, DeadLetterStatus>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let template = format!("SELECT id, status FROM {{p}}dead_letter WHERE id IN ({})", placeholders(ids.len()));
    let values = ids.into_iter().map(Value::from).collect();
    let query = database.query("rehearse a redrive", &template, values, &[Column::Number, Column::Text]);
    let rows = database.fetch(connection, query).await?;
    rows.into_iter().map(|mut row| Ok((row.number()?, row.text()?.parse()?))).collect()
}
