//! The audit trail, on any server.

use landfall_core::{AuditEntry, AuditFilter, Result, Timestamp};

use crate::portable::{Column, LetterTables, Value};

/// The longest name that every server stores.
const MAX_ACTOR_CHARACTERS: usize = 300;

/// The longest reason that is stored.
const MAX_TEXT_CHARACTERS: usize = 2000;

const COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[Number, Number, Text, Text, Number, Text, Text]
};

/// Returns the actor as it is stored.
pub(crate) fn storable_actor(actor: &str) -> String {
    cut(actor, MAX_ACTOR_CHARACTERS)
}

/// Returns a reason as it is stored.
pub(crate) fn storable_text(text: &str) -> String {
    cut(text, MAX_TEXT_CHARACTERS)
}

fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Implements [`AuditTrail::audit_entries`](landfall_core::AuditTrail::audit_entries).
pub async fn audit_entries<D: LetterTables>(
    database: &D,
    filter: &AuditFilter,
    limit: usize,
) -> Result<Vec<AuditEntry>> {
    let mut template = "SELECT a.id, {ms:a.at}, a.actor, a.action, a.dead_letter_id, {uuid:a.message_id}, a.detail
        FROM {p}audit a WHERE 1 = 1"
        .to_owned();
    let AuditFilter { dead_letter, message_id, actor, action, from, to, after } = filter;
    let conditions: [(&str, Option<Value>); 7] = [
        ("a.dead_letter_id = ?", dead_letter.map(Value::from)),
        ("a.message_id = {uuid}", message_id.map(|id| id.to_string().into())),
        ("a.actor = ?", actor.as_deref().map(|actor| storable_actor(actor).into())),
        ("a.action = ?", action.as_deref().map(|action| storable_actor(action).into())),
        ("a.at >= {time}", from.map(|from| from.as_millis().into())),
        ("a.at < {time}", to.map(|to| to.as_millis().into())),
        ("a.id > ?", after.map(Value::from)),
    ];
    let mut values = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            template.push_str(" AND ");
            template.push_str(condition);
            values.push(value);
        }
    }
    template.push_str(" ORDER BY a.id LIMIT ?");
    values.push((limit as u64).into());
    let rows = database.read(database.query("read the audit trail", &template, values, COLUMNS)).await?;
    rows.into_iter()
        .map(|mut row| {
            Ok(AuditEntry {
                id: row.number()?,
                at: Timestamp::from_millis(row.number()?),
                actor: row.text()?,
                action: row.text()?,
                dead_letter_id: row.number_or_null()?,
                message_id: row.text_or_null()?.and_then(|id| id.parse().ok()),
                detail: row.text()?,
            })
        })
        .collect()
}
