//! Rehearsals, on any server: one row for each letter of a request, with its claim and its result.

use std::time::Duration;

use landfall_core::adapter::RehearsalTask;
use landfall_core::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStatus, DeadLetters, Error, ErrorKind, GroupName, Headers,
    Kind, Message, MessageId, RehearsalId, RehearsalResult, RehearsedLetter, Result, Timestamp,
};

use crate::audit::{storable_actor, storable_text};
use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

/// Letters per statement.
const CHUNK: usize = 250;
/// A consumer that comes back after an outage must not run what was asked for long ago.
const ANSWERED_WITHIN_MS: i64 = 10 * 60 * 1000;
const KEPT_FOR_MS: i64 = 24 * 3600 * 1000;

/// Implements [`Rehearsals::request_rehearsal`](landfall_core::Rehearsals::request_rehearsal).
pub async fn request<D: LetterTables>(database: &D, letters: &[DeadLetterId], actor: &str) -> Result<RehearsalId> {
    let (id, doing) = (MessageId::new(), "request a rehearsal");
    let actor = storable_actor(actor);
    let mut transaction = database.begin().await?;
    let connection = &mut *transaction;
    let expired = vec![Value::from(now() - KEPT_FOR_MS)];
    let delete = database.statement(doing, "DELETE FROM {p}rehearsal WHERE requested_at < ?", expired);
    database.execute(connection, delete).await?;
    for chunk in letters.chunks(CHUNK) {
        // A letter of the relay has no group, and no handler.
        let is_asked = format!(
            "l.id IN ({}) AND l.status = 'parked' AND NOT l.ignored AND l.consumer_group <> ''",
            placeholders(chunk.len())
        );
        let ids = || chunk.iter().map(|letter| Value::from(*letter));
        let insert = format!(
            "INSERT INTO {{p}}rehearsal (id, dead_letter_id, consumer_group, requested_at)
             SELECT ?, l.id, l.consumer_group, ? FROM {{p}}dead_letter l WHERE {is_asked}"
        );
        let values = [Value::from(id.to_string()), Value::from(now())].into_iter().chain(ids()).collect();
        database.execute(connection, database.statement(doing, &insert, values)).await?;
        let audit = format!(
            "INSERT INTO {{p}}audit (actor, action, dead_letter_id, message_id, detail)
             SELECT ?, 'rehearse', l.id, l.message_id, '' FROM {{p}}dead_letter l WHERE {is_asked}"
        );
        let values = [Value::from(actor.clone())].into_iter().chain(ids()).collect();
        database.execute(connection, database.statement(doing, &audit, values)).await?;
    }
    database.commit(transaction).await?;
    Ok(id)
}

/// Implements [`Rehearsals::rehearsal`](landfall_core::Rehearsals::rehearsal).
pub async fn results<D: LetterTables>(database: &D, id: RehearsalId) -> Result<Vec<RehearsedLetter>> {
    const COLUMNS: &[Column] = &[Column::Number, Column::Text, Column::Text, Column::Text, Column::Text];
    let template = "SELECT dead_letter_id, outcome, error_code, error, fingerprint FROM {p}rehearsal WHERE id = ?
        ORDER BY dead_letter_id";
    let query = database.query("read a rehearsal", template, vec![id.to_string().into()], COLUMNS);
    database.read(query).await?.into_iter().map(rehearsed_letter).collect()
}

fn rehearsed_letter(mut row: Cells) -> Result<RehearsedLetter> {
    let (id, outcome) = (row.number()?, row.text_or_null()?);
    let Some(outcome) = outcome else { return Ok(RehearsedLetter { id, result: None }) };
    let result = RehearsalResult {
        outcome: outcome.parse()?,
        error_code: row.text_or_null()?,
        error: row.text_or_null()?,
        fingerprint: row.text_or_null()?,
    };
    Ok(RehearsedLetter { id, result: Some(result) })
}

/// A row that a consumer may claim.
struct Candidate {
    rehearsal: String,
    letter: DeadLetterId,
    claim: i64,
}

/// Implements [`Rehearsals::claim_rehearsal`](landfall_core::Rehearsals::claim_rehearsal).
pub async fn claim<D: LetterTables + DeadLetters>(
    database: &D,
    group: &GroupName,
    lease: Duration,
) -> Result<Option<RehearsalTask>> {
    while let Some(candidate) = oldest(database, group).await? {
        if !take(database, &candidate, lease).await? {
            // Another consumer was faster.
            continue;
        }
        match task(database, &candidate).await? {
            Some(task) => return Ok(Some(task)),
            // Redriven or discarded since: there is nothing to learn.
            None => forget(database, &candidate).await?,
        }
    }
    Ok(None)
}

async fn oldest<D: LetterTables>(database: &D, group: &GroupName) -> Result<Option<Candidate>> {
    const COLUMNS: &[Column] = &[Column::Text, Column::Number, Column::Number];
    let template = "SELECT id, dead_letter_id, claim FROM {p}rehearsal
        WHERE consumer_group = ? AND outcome IS NULL AND requested_at > ? AND claimed_until < ?
        ORDER BY requested_at, dead_letter_id LIMIT 1";
    let values = vec![group.as_str().into(), (now() - ANSWERED_WITHIN_MS).into(), now().into()];
    let mut rows = database.read(database.query("look for a rehearsal", template, values, COLUMNS)).await?;
    let Some(mut row) = rows.pop() else { return Ok(None) };
    Ok(Some(Candidate { rehearsal: row.text()?, letter: row.number()?, claim: row.number()? }))
}

async fn take<D: LetterTables>(database: &D, candidate: &Candidate, lease: Duration) -> Result<bool> {
    let until = now().saturating_add(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX));
    let template = "UPDATE {p}rehearsal SET claim = ?, claimed_until = ?
        WHERE id = ? AND dead_letter_id = ? AND claim = ? AND outcome IS NULL";
    let Candidate { rehearsal, letter, claim } = candidate;
    let values = vec![(claim + 1).into(), until.into(), rehearsal.as_str().into(), (*letter).into(), (*claim).into()];
    change(database, "claim a rehearsal", template, values).await
}

async fn forget<D: LetterTables>(database: &D, candidate: &Candidate) -> Result<()> {
    let template = "DELETE FROM {p}rehearsal WHERE id = ? AND dead_letter_id = ?";
    let values = vec![candidate.rehearsal.as_str().into(), candidate.letter.into()];
    change(database, "forget a rehearsal", template, values).await.map(drop)
}

/// Returns whether the statement changed a row.
async fn change<D: LetterTables>(
    database: &D,
    doing: &'static str,
    template: &str,
    values: Vec<Value>,
) -> Result<bool> {
    let mut transaction = database.begin().await?;
    let changed = database.execute(&mut transaction, database.statement(doing, template, values)).await?;
    database.commit(transaction).await?;
    Ok(changed == 1)
}

/// Reads the letter of a claim. `None` if it is no longer parked.
async fn task<D: LetterTables + DeadLetters>(database: &D, candidate: &Candidate) -> Result<Option<RehearsalTask>> {
    let status = Some(DeadLetterStatus::Parked);
    let filter = DeadLetterFilter { id: Some(candidate.letter), status, ..Default::default() };
    let Some(letter) = database.find(&filter, 1).await?.pop() else { return Ok(None) };
    let template = "SELECT mode, {ms:created_at} FROM {p}dead_letter WHERE id = ?";
    let columns = &[Column::Text, Column::Number];
    let query = database.query("read a dead letter", template, vec![candidate.letter.into()], columns);
    let Some(mut row) = database.read(query).await?.pop() else { return Ok(None) };
    let (mode, time, attempts) = (row.text()?.parse()?, Timestamp::from_millis(row.number()?), letter.attempts);
    let message = message(letter).map_err(|error| {
        let text = format!("dead letter {} is no longer a valid message", candidate.letter);
        Error::new(ErrorKind::Corrupt, text).with_source(error)
    })?;
    Ok(Some(RehearsalTask {
        rehearsal: candidate.rehearsal.parse()?,
        letter: candidate.letter,
        message: Message { mode, time, ..message },
        attempts,
        claim: candidate.claim + 1,
    }))
}

fn message(letter: DeadLetter) -> Result<Message> {
    Ok(Message {
        id: letter.message_id,
        key: letter.key,
        sequence: letter.sequence,
        kind: Kind::new(letter.kind)?,
        headers: Headers::from_json(&letter.headers.to_string())?,
        ..Message::new(letter.topic, letter.payload)
    })
}

/// Implements [`Rehearsals::record_rehearsal`](landfall_core::Rehearsals::record_rehearsal).
pub async fn record<D: LetterTables>(database: &D, task: &RehearsalTask, result: &RehearsalResult) -> Result<bool> {
    let template = "UPDATE {p}rehearsal SET outcome = ?, error_code = ?, error = ?, fingerprint = ?
        WHERE id = ? AND dead_letter_id = ? AND claim = ? AND outcome IS NULL";
    let values = vec![
        result.outcome.as_str().into(),
        Value::Text(result.error_code.clone()),
        Value::Text(result.error.as_deref().map(storable_text)),
        Value::Text(result.fingerprint.clone()),
        task.rehearsal.to_string().into(),
        task.letter.into(),
        task.claim.into(),
    ];
    change(database, "record a rehearsal", template, values).await
}

fn now() -> i64 {
    Timestamp::now().as_millis()
}
