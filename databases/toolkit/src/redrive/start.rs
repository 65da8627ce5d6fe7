//! Freezes a selection and stores it as a job.

use std::collections::HashMap;

use landfall_core::{
    DeadLetterId, Error, ErrorKind, MessageId, RedriveId, RedriveJob, RedriveRequest, RedriveSelection, RedriveStarted,
    Result,
};

use super::{audit_job, now, view};
use crate::audit::{storable_actor, storable_text};
use crate::letters::fill_fingerprints;
use crate::portable::{Column, LetterTables, Value, letters, placeholders};

/// Letters per statement.
const CHUNK: usize = 250;

const SELECT: &str = "SELECT id, fingerprint FROM {p}dead_letter";
const SELECTED: &[Column] = &[Column::Number, Column::Text];

/// A selected letter and its fingerprint, if it has one.
pub(super) type Selected = (DeadLetterId, Option<String>);

/// Implements [`Redrives::start_redrive`](landfall_core::Redrives::start_redrive).
pub async fn start<D: LetterTables>(database: &D, request: &RedriveRequest, actor: &str) -> Result<RedriveStarted> {
    request.selection.check()?;
    request.options.check()?;
    let id = request.given.unwrap_or_else(MessageId::new);
    if let Some(known) = view::job(database, id).await? {
        return Ok(judge(known, request));
    }
    // A letter without a fingerprint would look like a new error when it fails.
    fill_fingerprints(database).await?;
    match insert(database, id, request, actor).await {
        Ok(job) => Ok(RedriveStarted::New(job)),
        // A concurrent request with the same id may have been faster.
        Err(error) => match view::job(database, id).await? {
            Some(known) => Ok(judge(known, request)),
            None => Err(error),
        },
    }
}

fn judge(known: RedriveJob, request: &RedriveRequest) -> RedriveStarted {
    let asked: serde_json::Value = serde_json::from_str(&request.shown).unwrap_or_default();
    let is_equal = known.selection == asked && known.options == request.options;
    if is_equal && known.reason == storable_text(&request.reason) {
        RedriveStarted::Repeated(known)
    } else {
        RedriveStarted::Conflict(known.id)
    }
}

async fn insert<D: LetterTables>(
    database: &D,
    id: RedriveId,
    request: &RedriveRequest,
    actor: &str,
) -> Result<RedriveJob> {
    let mut transaction = database.begin().await?;
    let connection = &mut *transaction;
    let selected = select(database, connection, &request.selection).await?;
    let found = selected.len() as u64;
    if let Some(expected) = request.expected.filter(|expected| *expected != found) {
        let text = format!("{expected} messages matched when you looked, and {found} match now; rehearse again");
        return Err(Error::new(ErrorKind::Conflict, text));
    }
    insert_job(database, connection, id, request, actor, selected.len()).await?;
    for chunk in selected.chunks(CHUNK) {
        insert_items(database, connection, id, chunk).await?;
    }
    let detail = format!("{} letters; {}", selected.len(), storable_text(&request.reason));
    audit_job(database, connection, id, actor, "redrive-start", &detail).await?;
    database.commit(transaction).await?;
    let lost = || Error::new(ErrorKind::Internal, format!("redrive {id} was stored and is gone; this is a bug"));
    view::job(database, id).await?.ok_or_else(lost)
}

async fn insert_job<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    request: &RedriveRequest,
    actor: &str,
    matched: usize,
) -> Result<()> {
    let options = request.options;
    let template = "INSERT INTO {p}redrive (id, state, actor, reason, selection, lane, rate_per_s, concurrency, ramp,
            matched, created_at, updated_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let values: Vec<Value> = vec![
        id.to_string().into(),
        if matched == 0 { "finished" } else { "running" }.into(),
        storable_actor(actor).into(),
        storable_text(&request.reason).into(),
        request.shown.clone().into(),
        options.lane.as_str().into(),
        Value::Number(options.rate_per_s.map(i64::from)),
        i64::from(options.concurrency).into(),
        i64::from(options.ramp).into(),
        (matched as u64).into(),
        now(),
        now(),
    ];
    database.execute(connection, database.statement("store a redrive job", template, values)).await?;
    Ok(())
}

/// Returns the selected letters in their order. Ids that no letter has are among them.
pub(super) async fn select<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    selection: &RedriveSelection,
) -> Result<Vec<Selected>> {
    let doing = "select dead letters to redrive";
    match selection {
        RedriveSelection::Filter(filter) => {
            let filter = filter.as_ref().clone().or_parked();
            let (template, values) = letters(database.dialect(), SELECT, &filter);
            let query = database.query(doing, &format!("{template} ORDER BY id"), values, SELECTED);
            let rows = database.fetch(connection, query).await?;
            rows.into_iter().map(|mut row| Ok((row.number()?, row.text_or_null()?))).collect()
        }
        RedriveSelection::Ids(ids) => {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            let mut known: HashMap<DeadLetterId, Option<String>> = HashMap::new();
            for chunk in ids.chunks(CHUNK) {
                let template = format!("{SELECT} WHERE id IN ({})", placeholders(chunk.len()));
                let values = chunk.iter().map(|id| Value::from(*id)).collect();
                let query = database.query(doing, &template, values, SELECTED);
                for mut row in database.fetch(connection, query).await? {
                    known.insert(row.number()?, row.text_or_null()?);
                }
            }
            Ok(ids.into_iter().map(|id| (id, known.remove(&id).flatten())).collect())
        }
    }
}

async fn insert_items<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    chunk: &[Selected],
) -> Result<()> {
    let rows = vec!["(?, ?, 'waiting', ?)"; chunk.len()].join(", ");
    let template =
        format!("INSERT INTO {{p}}redrive_item (redrive_id, dead_letter_id, state, fingerprint) VALUES {rows}");
    let values = chunk.iter().flat_map(|(letter, fingerprint)| {
        [Value::from(id.to_string()), Value::from(*letter), Value::Text(fingerprint.clone())]
    });
    let statement = database.statement("store the letters of a redrive job", &template, values.collect());
    database.execute(connection, statement).await?;
    Ok(())
}
