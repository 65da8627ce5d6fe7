//! Alerts and notices as people and the daemon see them.

use landfall_core::{
    Alert, AlertFilter, AlertId, AlertNotice, Error, ErrorKind, NoticeFilter, NoticeState, Result, Timestamp,
};

use super::{ALERT, ALERT_COLUMNS, CHUNK, read_alert};
use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

const DOING: &str = "read alerts";

/// Implements [`Alerts::alerts`](landfall_core::Alerts::alerts).
pub async fn alerts<D: LetterTables>(database: &D, filter: &AlertFilter, limit: usize) -> Result<Vec<Alert>> {
    let AlertFilter { id, state, rule } = filter;
    let mut template = format!("SELECT {ALERT} FROM {{p}}alert WHERE 1 = 1");
    if state.is_none() {
        template.push_str(" AND state <> 'rule'");
    }
    let conditions = [
        ("id = ?", id.map(|id| id.to_string())),
        ("state = ?", state.map(|state| state.as_str().to_owned())),
        ("rule = ?", rule.as_deref().map(storable)),
    ];
    let (template, values) = restricted(template, conditions);
    let template = format!("{template} ORDER BY updated_at DESC, id LIMIT ?");
    let values = values.into_iter().chain([Value::from(limit as u64)]).collect();
    let rows = database.read(database.query(DOING, &template, values, ALERT_COLUMNS)).await?;
    rows.into_iter().map(read_alert).collect()
}

/// Implements [`AlertQueue::open_alerts`](landfall_core::AlertQueue::open_alerts).
pub async fn open<D: LetterTables>(database: &D, also: &[AlertId]) -> Result<Vec<Alert>> {
    let template = format!("SELECT {ALERT} FROM {{p}}alert WHERE state IN ('pending', 'firing', 'rule')");
    let rows = database.read(database.query(DOING, &template, Vec::new(), ALERT_COLUMNS)).await?;
    let mut found = rows.into_iter().map(read_alert).collect::<Result<Vec<_>>>()?;
    for chunk in also.chunks(CHUNK) {
        let list = placeholders(chunk.len());
        let template = format!("SELECT {ALERT} FROM {{p}}alert WHERE state = 'resolved' AND id IN ({list})");
        let values = chunk.iter().map(|id| Value::from(id.to_string())).collect();
        let rows = database.read(database.query(DOING, &template, values, ALERT_COLUMNS)).await?;
        for row in rows {
            let alert = read_alert(row)?;
            // It may have been resolved between the two queries.
            found.retain(|known| known.id != alert.id);
            found.push(alert);
        }
    }
    Ok(found)
}

/// Implements [`Alerts::alert_notices`](landfall_core::Alerts::alert_notices).
pub async fn notices<D: LetterTables>(database: &D, filter: &NoticeFilter, limit: usize) -> Result<Vec<AlertNotice>> {
    use Column::{Number, Text};
    let NoticeFilter { channel, state, before } = filter;
    let template = "SELECT id, channel, state, body, delivery, attempts, next_at, created_at, settled_at, error
        FROM {p}alert_notice WHERE 1 = 1"
        .to_owned();
    let conditions = [
        ("channel = ?", channel.as_deref().map(storable)),
        ("state = ?", state.map(|state: NoticeState| state.as_str().to_owned())),
        ("id < ?", before.map(|before| before.to_string())),
    ];
    let (template, values) = restricted(template, conditions);
    // Ids grow with time.
    let template = format!("{template} ORDER BY id DESC LIMIT ?");
    let values = values.into_iter().chain([Value::from(limit as u64)]).collect();
    let columns = &[Text, Text, Text, Text, Text, Number, Number, Number, Number, Text];
    let rows = database.read(database.query("read the notices of alerts", &template, values, columns)).await?;
    rows.into_iter().map(read_notice).collect()
}

fn restricted(mut template: String, conditions: [(&str, Option<String>); 3]) -> (String, Vec<Value>) {
    let mut values = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            template.push_str(" AND ");
            template.push_str(condition);
            values.push(value.into());
        }
    }
    (template, values)
}

/// PostgreSQL accepts no NUL in a value.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn read_notice(mut row: Cells) -> Result<AlertNotice> {
    let (id, channel, state): (_, _, NoticeState) = (row.text()?.parse()?, row.text()?, row.text()?.parse()?);
    let body = serde_json::from_str(&row.text()?)
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("notice {id} is not readable")).with_source(error))?;
    let delivery = row.text_or_null()?.map(|delivery| delivery.parse()).transpose()?;
    let attempts = u32::try_from(row.count()?).unwrap_or(u32::MAX);
    let next_at = Timestamp::from_millis(row.number()?);
    Ok(AlertNotice {
        id,
        channel,
        state,
        body,
        delivery,
        attempts,
        next_attempt: (state == NoticeState::Waiting).then_some(next_at),
        created_at: Timestamp::from_millis(row.number()?),
        settled_at: row.number_or_null()?.map(Timestamp::from_millis),
        error: row.text_or_null()?,
    })
}
