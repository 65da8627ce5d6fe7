//! Changes of alerts.

use landfall_core::{
    Alert, AlertChange, AlertId, Error, ErrorKind, MessageId, MuteTarget, NoticeBody, NoticeKind, Result, Timestamp,
};

use super::CHUNK;
use crate::audit::{storable_actor, storable_text};
use crate::portable::{Column, LetterTables, Value, placeholders};

/// Implements [`AlertQueue::record_alerts`](landfall_core::AlertQueue::record_alerts).
pub async fn record<D: LetterTables>(database: &D, changes: &[AlertChange], now: Timestamp) -> Result<()> {
    let mut transaction = database.begin().await?;
    for AlertChange { alert, notices } in changes {
        store(database, &mut transaction, alert).await?;
        for (channel, kind) in notices {
            insert_notice(database, &mut transaction, alert, channel, *kind, now).await?;
        }
    }
    database.commit(transaction).await
}

async fn store<D: LetterTables>(database: &D, connection: &mut D::Connection, alert: &Alert) -> Result<()> {
    let doing = "store an alert";
    let time = |time: Option<Timestamp>| Value::Number(time.map(Timestamp::as_millis));
    let state: Vec<Value> = vec![
        alert.state.as_str().into(),
        alert.value.into(),
        alert.threshold.into(),
        alert.summary.replace('\0', "\u{fffd}").into(),
        Value::Number(alert.sample),
        time(alert.pending_since),
        time(alert.firing_since),
        time(alert.resolved_at),
        time(alert.muted_until),
        time(alert.notified_at),
        alert.notified_value.into(),
        Value::Number(alert.notified_sample),
        alert.version.into(),
        alert.updated_at.as_millis().into(),
    ];
    let changed = if alert.version == 1 {
        // A key of a message may have a NUL, which PostgreSQL does not store.
        let labels = serde_json::json!(alert.labels).to_string().replace("\\u0000", "\\ufffd");
        let template = "INSERT INTO {p}alert (state, value, threshold, summary, sample, pending_since, firing_since,
                resolved_at, muted_until, notified_at, notified_value, notified_sample, version, updated_at,
                id, rule, labels, fingerprint)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let identity = vec![
            alert.id.to_string().into(),
            alert.rule.as_str().into(),
            labels.into(),
            Value::Text(alert.labels.get("fingerprint").cloned()),
        ];
        refuse_existing(database, connection, alert.id).await?;
        let values = state.into_iter().chain(identity).collect();
        database.execute(connection, database.statement(doing, template, values)).await?
    } else {
        let template = "UPDATE {p}alert SET state = ?, value = ?, threshold = ?, summary = ?, sample = ?,
                pending_since = ?, firing_since = ?, resolved_at = ?, muted_until = ?, notified_at = ?,
                notified_value = ?, notified_sample = ?, version = ?, updated_at = ?
            WHERE id = ? AND version = ?";
        let identity = [Value::from(alert.id.to_string()), Value::from(alert.version - 1)];
        let values = state.into_iter().chain(identity).collect();
        database.execute(connection, database.statement(doing, template, values)).await?
    };
    if changed == 1 { Ok(()) } else { Err(conflict(alert.id)) }
}

async fn refuse_existing<D: LetterTables>(database: &D, connection: &mut D::Connection, id: AlertId) -> Result<()> {
    let template = "SELECT version FROM {p}alert WHERE id = ?";
    let query = database.query("store an alert", template, vec![id.to_string().into()], &[Column::Number]);
    if database.fetch(connection, query).await?.is_empty() { Ok(()) } else { Err(conflict(id)) }
}

fn conflict(id: AlertId) -> Error {
    Error::new(ErrorKind::Conflict, format!("alert {id} was changed meanwhile"))
}

async fn insert_notice<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    alert: &Alert,
    channel: &str,
    kind: NoticeKind,
    now: Timestamp,
) -> Result<()> {
    let body = serde_json::to_string(&NoticeBody::new(alert, kind)).map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot write the notice of an alert as JSON").with_source(error)
    })?;
    let template = "INSERT INTO {p}alert_notice (id, alert_id, version, channel, body, state, next_at, created_at)
        VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?)";
    let values = vec![
        MessageId::new().to_string().into(),
        alert.id.to_string().into(),
        alert.version.into(),
        channel.into(),
        body.replace("\\u0000", "\\ufffd").into(),
        now.as_millis().into(),
        now.as_millis().into(),
    ];
    database.execute(connection, database.statement("store the notice of an alert", template, values)).await?;
    Ok(())
}

/// Implements [`Alerts::mute_alert`](landfall_core::Alerts::mute_alert).
pub async fn mute<D: LetterTables>(
    database: &D,
    target: &MuteTarget,
    until: Timestamp,
    reason: &str,
    actor: &str,
) -> Result<()> {
    let doing = "mute an alert";
    let now = Timestamp::now();
    let (id, name) = match target {
        MuteTarget::Alert(id) => (*id, format!("alert {id}")),
        MuteTarget::Rule(rule) => (Alert::id_of_rule(rule), format!("rule {rule}")),
    };
    let mut transaction = database.begin().await?;
    let template = "UPDATE {p}alert SET muted_until = ?, version = version + 1, updated_at = ? WHERE id = ?";
    let values = vec![until.as_millis().into(), now.as_millis().into(), id.to_string().into()];
    let changed = database.execute(&mut transaction, database.statement(doing, template, values)).await?;
    match target {
        MuteTarget::Rule(rule) if changed == 0 => {
            let row = Alert { muted_until: Some(until), version: 1, ..Alert::of_rule(rule, now) };
            store(database, &mut transaction, &row).await?;
        }
        MuteTarget::Alert(_) if changed == 0 => {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no {name}")));
        }
        _ => {}
    }
    let action = if until > now { "alert-mute" } else { "alert-unmute" };
    let detail = storable_text(&format!("{name} until {until}; {reason}"));
    let template = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?, ?, {uuid}, ?)";
    let values = vec![storable_actor(actor).into(), action.into(), id.to_string().into(), detail.into()];
    database.execute(&mut transaction, database.statement("write the audit trail", template, values)).await?;
    database.commit(transaction).await
}

/// Implements [`AlertQueue::remove_alerts`](landfall_core::AlertQueue::remove_alerts).
pub async fn remove<D: LetterTables>(database: &D, before: Timestamp, at_most: usize) -> Result<u64> {
    let doing = "remove old alerts";
    let mut removed = 0;
    for (table, condition) in [
        ("alert_notice", "state <> 'waiting' AND settled_at < ?"),
        // The row of a rule is remembered for as long as the rule exists.
        ("alert", "state = 'resolved' AND updated_at < ? AND coalesce(muted_until, 0) < ?"),
    ] {
        let template = format!("SELECT id FROM {{p}}{table} WHERE {condition} LIMIT ?");
        let times = condition.matches('?').map(|_| Value::from(before.as_millis()));
        let values = times.chain([Value::from(at_most as u64)]).collect();
        let rows = database.read(database.query(doing, &template, values, &[Column::Text])).await?;
        let ids = rows.into_iter().map(|mut row| row.text()).collect::<Result<Vec<_>>>()?;
        for chunk in ids.chunks(CHUNK) {
            let mut transaction = database.begin().await?;
            let list = placeholders(chunk.len());
            let template = format!("DELETE FROM {{p}}{table} WHERE {condition} AND id IN ({list})");
            let times = condition.matches('?').map(|_| Value::from(before.as_millis()));
            let values = times.chain(chunk.iter().map(|id| Value::from(id.as_str()))).collect();
            removed += database.execute(&mut transaction, database.statement(doing, &template, values)).await?;
            database.commit(transaction).await?;
        }
    }
    Ok(removed)
}
