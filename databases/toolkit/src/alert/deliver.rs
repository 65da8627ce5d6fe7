//! Attempts to deliver notices.

use landfall_core::{
    Error, ErrorKind, MessageId, NoticeBatch, NoticeBatchId, NoticeBody, NoticeClaim, NoticeOutcome, NoticeState,
    Result, Timestamp,
};

use crate::audit::storable_text;
use crate::portable::{Column, LetterTables, Value, placeholders};

const DOING: &str = "claim the notices of a channel";

/// No server may hold a channel for longer. A later time was stored under a wrong clock.
const LONGEST_WAIT_MS: i64 = 2 * 3600 * 1000;

/// Implements [`AlertQueue::claim_notices`](landfall_core::AlertQueue::claim_notices).
pub async fn claim<D: LetterTables>(database: &D, claim: &NoticeClaim) -> Result<Option<NoticeBatch>> {
    if rests(database, claim).await? {
        return Ok(None);
    }
    let due = due_delivery(database, claim).await?;
    let fresh = match due {
        Some(_) => Vec::new(),
        None => fresh_notices(database, claim).await?,
    };
    if due.is_none() && fresh.is_empty() {
        return Ok(None);
    }
    let mut transaction = database.begin().await?;
    let (id, attempts) = match due {
        Some(due) => due,
        None => {
            let id = MessageId::new();
            let list = placeholders(fresh.len());
            let template = format!(
                "UPDATE {{p}}alert_notice SET delivery = ?
                WHERE state = 'waiting' AND delivery IS NULL AND id IN ({list})"
            );
            let values = std::iter::once(id.to_string()).chain(fresh.iter().cloned()).map(Value::from).collect();
            let changed = database.execute(&mut transaction, database.statement(DOING, &template, values)).await?;
            if changed != fresh.len() as u64 {
                return Err(taken(&claim.channel));
            }
            (id, 0)
        }
    };
    let template = "UPDATE {p}alert_notice SET attempts = attempts + 1, attempted_at = ?, next_at = ?
        WHERE delivery = ? AND state = 'waiting' AND attempts = ?";
    let until = claim.now.as_millis() + claim.patience.as_millis() as i64;
    let values = vec![claim.now.as_millis().into(), until.into(), id.to_string().into(), attempts.into()];
    if database.execute(&mut transaction, database.statement(DOING, template, values)).await? == 0 {
        return Err(taken(&claim.channel));
    }
    let batch = read_batch(database, &mut transaction, id, claim, attempts + 1).await?;
    database.commit(transaction).await?;
    Ok(Some(batch))
}

fn taken(channel: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("another daemon delivers the notices of the channel {channel}"))
}

/// Whether the channel must rest: after an attempt, or because its server said so.
async fn rests<D: LetterTables>(database: &D, claim: &NoticeClaim) -> Result<bool> {
    let now = claim.now.as_millis();
    let template = "SELECT max(attempted_at) FROM {p}alert_notice WHERE channel = ?";
    let query = database.query(DOING, template, vec![claim.channel.as_str().into()], &[Column::Number]);
    let last = first_number(database.read(query).await?)?;
    // A moment in the future was written under a wrong clock.
    if last.is_some_and(|last| last <= now && now - last < claim.spacing.as_millis() as i64) {
        return Ok(true);
    }
    let template = "SELECT max(hold_until) FROM {p}alert_notice WHERE channel = ? AND state = 'waiting'";
    let query = database.query(DOING, template, vec![claim.channel.as_str().into()], &[Column::Number]);
    Ok(first_number(database.read(query).await?)?.is_some_and(|until| until > now && until <= now + LONGEST_WAIT_MS))
}

fn first_number(rows: Vec<crate::portable::Cells>) -> Result<Option<i64>> {
    rows.into_iter().next().map_or(Ok(None), |mut row| row.number_or_null())
}

/// Returns a delivery whose next attempt is due, and its attempts so far.
async fn due_delivery<D: LetterTables>(database: &D, claim: &NoticeClaim) -> Result<Option<(NoticeBatchId, i64)>> {
    let template = "SELECT delivery, attempts FROM {p}alert_notice
        WHERE channel = ? AND state = 'waiting' AND delivery IS NOT NULL AND (next_at <= ? OR next_at > ?)
        ORDER BY next_at, id LIMIT 1";
    let now = claim.now.as_millis();
    let values = vec![claim.channel.as_str().into(), now.into(), (now + LONGEST_WAIT_MS).into()];
    let query = database.query(DOING, template, values, &[Column::Text, Column::Number]);
    let due = database.read(query).await?.pop();
    due.map(|mut row| Ok((row.text()?.parse()?, row.number()?))).transpose()
}

/// Returns notices that are in no delivery. A notice waits for the earlier ones of its alert, so that no channel hears
/// of an end before the beginning.
async fn fresh_notices<D: LetterTables>(database: &D, claim: &NoticeClaim) -> Result<Vec<String>> {
    let template = "SELECT n.id FROM {p}alert_notice n
        WHERE n.channel = ? AND n.state = 'waiting' AND n.delivery IS NULL
            AND NOT EXISTS (SELECT 1 FROM {p}alert_notice e WHERE e.alert_id = n.alert_id AND e.channel = n.channel
                AND e.state = 'waiting' AND e.version < n.version)
        ORDER BY n.created_at, n.id LIMIT ?";
    let values = vec![claim.channel.as_str().into(), (claim.at_most as u64).into()];
    let rows = database.read(database.query(DOING, template, values, &[Column::Text])).await?;
    rows.into_iter().map(|mut row| row.text()).collect()
}

async fn read_batch<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: NoticeBatchId,
    claim: &NoticeClaim,
    attempt: i64,
) -> Result<NoticeBatch> {
    let template = "SELECT body, created_at FROM {p}alert_notice WHERE delivery = ? ORDER BY created_at, id";
    let query = database.query(DOING, template, vec![id.to_string().into()], &[Column::Text, Column::Number]);
    let mut notices = Vec::new();
    let mut created_at = claim.now;
    for mut row in database.fetch(connection, query).await? {
        let body: NoticeBody = serde_json::from_str(&row.text()?).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("delivery {id} has a notice that is not readable"))
                .with_source(error)
        })?;
        notices.push(body);
        created_at = created_at.min(Timestamp::from_millis(row.number()?));
    }
    let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
    Ok(NoticeBatch { id, channel: claim.channel.clone(), attempt, created_at, notices })
}

/// Implements [`AlertQueue::settle_notices`](landfall_core::AlertQueue::settle_notices).
pub async fn settle<D: LetterTables>(
    database: &D,
    batch: &NoticeBatch,
    outcome: &NoticeOutcome,
    now: Timestamp,
) -> Result<bool> {
    let (state, next_at, hold_until, error) = match outcome {
        NoticeOutcome::Delivered => (NoticeState::Delivered, now, None, None),
        NoticeOutcome::Retry { at, error } => (NoticeState::Waiting, *at, None, Some(error)),
        NoticeOutcome::Hold { until, error } => (NoticeState::Waiting, *until, Some(*until), Some(error)),
        NoticeOutcome::GivenUp { error } => (NoticeState::GivenUp, now, None, Some(error)),
    };
    let settled_at = (state != NoticeState::Waiting).then(|| now.as_millis());
    let mut transaction = database.begin().await?;
    let template = "UPDATE {p}alert_notice
        SET state = ?, next_at = ?, hold_until = ?, attempted_at = ?, settled_at = ?, error = ?
        WHERE delivery = ? AND state = 'waiting' AND attempts = ?";
    let values = vec![
        state.as_str().into(),
        next_at.as_millis().into(),
        Value::Number(hold_until.map(Timestamp::as_millis)),
        now.as_millis().into(),
        Value::Number(settled_at),
        Value::Text(error.map(|error| storable_text(error))),
        batch.id.to_string().into(),
        i64::from(batch.attempt).into(),
    ];
    let statement = database.statement("record the outcome of a notice", template, values);
    let changed = database.execute(&mut transaction, statement).await?;
    database.commit(transaction).await?;
    Ok(changed > 0)
}
