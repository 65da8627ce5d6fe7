//! Rules that people make for keys, on any server.

use landfall_core::{Error, Key, KeyRule, KeyRuleKind, MessageId, Result, Timestamp, TopicName};

use crate::audit::{storable_actor, storable_text};
use crate::portable::{Column, LetterTables, Value};

/// The rule in force of the letter `l`, as a column.
pub(crate) const RULE: &str = "(SELECT k.rule FROM {p}dead_letter_key k WHERE k.topic = l.topic AND k.{key} = l.{key}
        AND (k.until_ms IS NULL OR k.until_ms > {now_ms}))";

/// Implements [`KeyRules::set_key_rule`](landfall_core::KeyRules::set_key_rule).
pub async fn set_key_rule<D: LetterTables>(database: &D, rule: &KeyRule) -> Result<()> {
    if let Some(until) = rule.until.filter(|until| *until <= Timestamp::now()) {
        return Err(Error::invalid(format!("a rule cannot last until {until}, which is over")));
    }
    let mut transaction = database.begin().await?;
    delete(database, &mut transaction, &rule.topic, &rule.key).await?;
    let template = "INSERT INTO {p}dead_letter_key (topic, {key}, rule, until_ms, reason, actor, since_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?)";
    let values = vec![
        rule.topic.as_str().into(),
        rule.key.as_str().into(),
        rule.rule.as_str().into(),
        Value::Number(rule.until.map(Timestamp::as_millis)),
        storable_text(&rule.reason).into(),
        storable_actor(&rule.actor).into(),
        rule.since.as_millis().into(),
    ];
    database.execute(&mut transaction, database.statement("store a key rule", template, values)).await?;
    let action = match rule.rule {
        KeyRuleKind::Blocked => "key-block",
        KeyRuleKind::Allowed => "key-allow",
    };
    audit(database, &mut transaction, (&rule.topic, &rule.key), action, &rule.reason, &rule.actor).await?;
    database.commit(transaction).await
}

/// Implements [`KeyRules::remove_key_rule`](landfall_core::KeyRules::remove_key_rule).
pub async fn remove_key_rule<D: LetterTables>(
    database: &D,
    topic: &TopicName,
    key: &Key,
    reason: &str,
    actor: &str,
) -> Result<bool> {
    let mut transaction = database.begin().await?;
    let removed = delete(database, &mut transaction, topic, key).await?;
    if removed {
        audit(database, &mut transaction, (topic, key), "key-release", reason, actor).await?;
    }
    database.commit(transaction).await?;
    Ok(removed)
}

async fn delete<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    topic: &TopicName,
    key: &Key,
) -> Result<bool> {
    let template = "DELETE FROM {p}dead_letter_key WHERE topic = ? AND {key} = ?";
    let values = vec![topic.as_str().into(), key.as_str().into()];
    let removed = database.execute(connection, database.statement("remove a key rule", template, values)).await?;
    Ok(removed > 0)
}

/// Implements [`KeyRules::key_rules`](landfall_core::KeyRules::key_rules).
pub async fn key_rules<D: LetterTables>(database: &D, limit: usize) -> Result<Vec<KeyRule>> {
    let template = "SELECT topic, {key}, rule, until_ms, reason, actor, since_ms FROM {p}dead_letter_key
        WHERE until_ms IS NULL OR until_ms > {now_ms} ORDER BY since_ms DESC, topic, {key} LIMIT ?";
    let columns = {
        use Column::{Number, Text};
        &[Text, Text, Text, Number, Text, Text, Number]
    };
    let query = database.query("list key rules", template, vec![(limit as u64).into()], columns);
    let rows = database.read(query).await?;
    rows.into_iter()
        .map(|mut row| {
            Ok(KeyRule {
                topic: TopicName::new(row.text()?)?,
                key: Key::new(row.text()?)?,
                rule: row.text()?.parse()?,
                until: row.number_or_null()?.map(Timestamp::from_millis),
                reason: row.text()?,
                actor: row.text()?,
                since: Timestamp::from_millis(row.number()?),
            })
        })
        .collect()
}

/// A key is no message, so its rows have an id that is derived from its name.
async fn audit<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    (topic, key): (&TopicName, &Key),
    action: &str,
    reason: &str,
    actor: &str,
) -> Result<()> {
    let template = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?, ?, {uuid}, ?)";
    let id = MessageId::from_business(topic.as_str(), key.as_str()).to_string();
    let detail = storable_text(&format!("{topic} {key}: {reason}"));
    let values = vec![storable_actor(actor).into(), action.into(), id.into(), detail.into()];
    database.execute(connection, database.statement("write the audit trail", template, values)).await?;
    Ok(())
}
