//! Observes the dead letters.

use std::collections::BTreeMap;

use landfall_core::{
    ALERT_MEMORY, GroupQuery, LetterObservations, LetterQuery, ObservedGroup, ParkedKey, ParkedLetters, RATE_BASELINE,
    RATE_WINDOW, RecordedLetters, Result, Timestamp,
};

use crate::letters::fill_fingerprints;
use crate::portable::{Cells, Column, LetterTables, Value};

const DOING: &str = "observe dead letters";

/// Letters that need a person. A redriven one may fail again.
const PARKED: &str = "{open:d} AND d.status IN ('parked', 'redriving') AND NOT d.ignored";

/// Implements [`AlertQueue::observe_letters`](landfall_core::AlertQueue::observe_letters).
pub async fn letters<D: LetterTables>(database: &D, query: &LetterQuery) -> Result<LetterObservations> {
    let mut groups = BTreeMap::new();
    if !query.groups.is_empty() {
        fill_fingerprints(database).await?;
    }
    for wanted in &query.groups {
        groups.insert(wanted.rule.clone(), observe_groups(database, wanted, query.now).await?);
    }
    Ok(LetterObservations {
        parked: parked(database).await?,
        keys: keys(database, query).await?,
        recorded: recorded(database, query.now).await?,
        groups,
    })
}

async fn parked<D: LetterTables>(database: &D) -> Result<Vec<ParkedLetters>> {
    use Column::{Number, Text};
    let template = format!(
        "SELECT d.topic, d.consumer_group, count(*), min(d.id), max(d.id), {{ms:min(d.first_seen)}}
        FROM {{p}}dead_letter d WHERE {PARKED} GROUP BY d.topic, d.consumer_group"
    );
    let columns = &[Text, Text, Number, Number, Number, Number];
    let rows = database.read(database.query(DOING, &template, Vec::new(), columns)).await?;
    let read = |mut row: Cells| {
        Ok(ParkedLetters {
            topic: row.text()?,
            group: row.text()?,
            count: row.count()?,
            oldest: row.number()?,
            newest: row.number()?,
            oldest_at: Timestamp::from_millis(row.number()?),
        })
    };
    rows.into_iter().map(read).collect()
}

async fn keys<D: LetterTables>(database: &D, query: &LetterQuery) -> Result<Vec<ParkedKey>> {
    use Column::{Number, Text};
    let template = format!(
        "SELECT d.topic, d.consumer_group, d.{{key}}, count(*), min(d.id), {{ms:min(d.first_seen)}}
        FROM {{p}}dead_letter d WHERE {PARKED} AND d.holds_key AND d.{{key}} IS NOT NULL
        GROUP BY d.topic, d.consumer_group, d.{{key}} HAVING min(d.first_seen) < {{time}}
        ORDER BY min(d.first_seen), min(d.id) LIMIT ?"
    );
    let values = vec![query.keys_before.as_millis().into(), (query.most_keys as u64).into()];
    let columns = &[Text, Text, Text, Number, Number, Number];
    let rows = database.read(database.query(DOING, &template, values, columns)).await?;
    let read = |mut row: Cells| {
        Ok(ParkedKey {
            topic: row.text()?,
            group: row.text()?,
            key: row.text()?,
            count: row.count()?,
            oldest: row.number()?,
            oldest_at: Timestamp::from_millis(row.number()?),
        })
    };
    rows.into_iter().map(read).collect()
}

async fn recorded<D: LetterTables>(database: &D, now: Timestamp) -> Result<Vec<RecordedLetters>> {
    use Column::{Number, Text};
    let recent = now.as_millis() - RATE_WINDOW.as_millis() as i64;
    let before = recent - RATE_BASELINE.as_millis() as i64;
    // A letter that only waits behind another did not fail.
    let template = "SELECT d.topic, d.consumer_group, count(CASE WHEN d.first_seen >= {time} THEN 1 END),
            count(CASE WHEN d.first_seen < {time} THEN 1 END), max(d.id)
        FROM {p}dead_letter d WHERE d.first_seen >= {time} AND d.status <> 'waiting'
        GROUP BY d.topic, d.consumer_group";
    let values = vec![recent.into(), recent.into(), before.into()];
    let columns = &[Text, Text, Number, Number, Number];
    let rows = database.read(database.query(DOING, template, values, columns)).await?;
    let read = |mut row: Cells| {
        Ok(RecordedLetters {
            topic: row.text()?,
            group: row.text()?,
            recent: row.count()?,
            before: row.count()?,
            newest: row.number()?,
        })
    };
    rows.into_iter().map(read).collect()
}

async fn observe_groups<D: LetterTables>(
    database: &D,
    wanted: &GroupQuery,
    now: Timestamp,
) -> Result<Vec<ObservedGroup>> {
    let stale = now.as_millis() - ALERT_MEMORY.as_millis() as i64;
    let rule = || Value::from(wanted.rule.as_str());
    // Compared once for each error, and not for each letter.
    let new = "NOT EXISTS (SELECT 1 FROM {p}alert a WHERE a.rule = ? AND a.fingerprint = g.fingerprint)";
    // From the few alerts to their letters.
    let known = "d.fingerprint IN (SELECT a.fingerprint FROM {p}alert a WHERE a.rule = ?";
    let open = format!("{known} AND a.state IN ('pending', 'firing'))");
    let forgotten = format!("{known} AND a.state = 'resolved' AND a.updated_at < ?)");
    let all = || ("1 = 1", Vec::new());
    let mut found = groups_that(database, wanted, all(), (new, vec![rule()]), wanted.most).await?;
    // An open alert that is not among them would count as resolved.
    found.extend(groups_that(database, wanted, (&open, vec![rule()]), all(), i64::MAX as usize).await?);
    let values = vec![rule(), stale.into()];
    found.extend(groups_that(database, wanted, (&forgotten, values), all(), wanted.most).await?);
    Ok(found)
}

/// A condition and its values.
type Condition<'a> = (&'a str, Vec<Value>);

/// Returns the errors of parked letters, the newest first: of the letters and of the errors for which a condition
/// holds.
async fn groups_that<D: LetterTables>(
    database: &D,
    wanted: &GroupQuery,
    letters: Condition<'_>,
    errors: Condition<'_>,
    most: usize,
) -> Result<Vec<ObservedGroup>> {
    use Column::{Number, Text};
    let (letters, mut values) = letters;
    let mut template = format!(
        "SELECT d.fingerprint AS fingerprint, count(*) AS letters, max(d.id) AS sample
        FROM {{p}}dead_letter d WHERE {PARKED} AND d.fingerprint IS NOT NULL AND {letters}"
    );
    for (column, name) in [
        ("d.topic", wanted.topic.as_ref().map(|topic| topic.as_str())),
        ("d.consumer_group", wanted.group.as_ref().map(|group| group.as_str())),
    ] {
        if let Some(name) = name {
            template.push_str(&format!(" AND {column} = ?"));
            values.push(name.into());
        }
    }
    let (errors, of_errors) = errors;
    let template = format!(
        "SELECT g.fingerprint, g.letters, g.sample, s.topic, s.consumer_group, s.error_code, s.error
        FROM ({template} GROUP BY d.fingerprint) g JOIN {{p}}dead_letter s ON s.id = g.sample
        WHERE {errors} ORDER BY g.sample DESC LIMIT ?"
    );
    values.extend(of_errors);
    values.push((most as u64).into());
    let columns = &[Text, Number, Number, Text, Text, Text, Text];
    let rows = database.read(database.query(DOING, &template, values, columns)).await?;
    let read = |mut row: Cells| {
        Ok(ObservedGroup {
            fingerprint: row.text()?,
            count: row.count()?,
            sample: row.number()?,
            topic: row.text()?,
            group: row.text()?,
            error_code: row.text()?,
            error: row.text()?,
        })
    };
    rows.into_iter().map(read).collect()
}
