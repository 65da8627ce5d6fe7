//! Dead letters, on any server: groups, counts, ignored letters and fingerprints that are not computed yet.

use std::collections::HashMap;

use landfall_core::{
    AtLeast, DeadLetterFilter, DeadLetterGroup, DeadLetterId, DeadLetterStatus, DeadLetters, Error, ErrorKind,
    GroupState, Result, Timestamp, error_fingerprint,
};

use crate::audit::{storable_actor, storable_text};
use crate::groups;
use crate::portable::{Column, LetterTables, Value, letters, placeholders};

/// Letters per transaction while fingerprints are computed.
const BATCH: u64 = 500;

/// Computes the fingerprints of parked letters that have none: letters of the relay and of earlier versions. Safe at
/// any time and from several processes. A letter that changes meanwhile is left out.
pub(crate) async fn fill_fingerprints<D: LetterTables>(database: &D) -> Result<()> {
    let doing = "compute fingerprints";
    let mut after = DeadLetterId::MIN;
    loop {
        let template = "SELECT id, error_code, error FROM {p}dead_letter
            WHERE fingerprint IS NULL AND status = 'parked' AND id > ? ORDER BY id LIMIT ?";
        let columns = &[Column::Number, Column::Text, Column::Text];
        let query = database.query(doing, template, vec![after.into(), BATCH.into()], columns);
        let rows = database.read(query).await?;
        let is_last = (rows.len() as u64) < BATCH;
        if rows.is_empty() {
            return Ok(());
        }
        let mut transaction = database.begin().await?;
        for mut row in rows {
            let (id, code, error) = (row.number()?, row.text()?, row.text()?);
            let template = "UPDATE {p}dead_letter {primary} SET fingerprint = ?
                WHERE id = ? AND fingerprint IS NULL AND status = 'parked' AND error_code = ? AND error = ?";
            let fingerprint = error_fingerprint(&code, &error);
            let values = vec![fingerprint.into(), id.into(), code.into(), error.into()];
            database.execute(&mut transaction, database.statement(doing, template, values)).await?;
            after = id;
        }
        database.commit(transaction).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Implements [`DeadLetters::count_letters`].
pub async fn count_letters<D: LetterTables>(database: &D, filter: &DeadLetterFilter, most: u64) -> Result<AtLeast> {
    prepare(database, filter).await?;
    let (template, mut values) = letters(database.dialect(), "SELECT 1 AS one FROM {p}dead_letter", filter);
    let template = format!("SELECT count(*) FROM ({template} LIMIT ?) counted");
    values.push(most.saturating_add(1).into());
    let rows = database.read(database.query("count dead letters", &template, values, &[Column::Number])).await?;
    let count = rows.into_iter().next().map(|mut row| row.count()).transpose()?.unwrap_or_default();
    Ok(AtLeast { count: count.min(most), at_least: count > most })
}

/// Computes missing fingerprints if the filter compares them.
pub async fn prepare<D: LetterTables>(database: &D, filter: &DeadLetterFilter) -> Result<()> {
    if filter.fingerprint.is_some() || filter.group_state.is_some() {
        fill_fingerprints(database).await?;
    }
    if filter.group_state.is_some() { groups::advance(database).await } else { Ok(()) }
}

/// Implements [`DeadLetters::top_error_codes`].
pub async fn top_error_codes<D: LetterTables>(database: &D, limit: usize) -> Result<Vec<(String, u64)>> {
    let template = "SELECT error_code, count(*) FROM {p}dead_letter WHERE status = 'parked' AND NOT ignored
        GROUP BY error_code ORDER BY count(*) DESC, error_code LIMIT ?";
    let columns = &[Column::Text, Column::Number];
    let query = database.query("count dead letters", template, vec![(limit as u64).into()], columns);
    database.read(query).await?.into_iter().map(|mut row| Ok((row.text()?, row.count()?))).collect()
}

/// Implements [`DeadLetters::dead_letter_groups`].
pub async fn dead_letter_groups<D: LetterTables>(
    database: &D,
    filter: &DeadLetterFilter,
    limit: usize,
) -> Result<Vec<DeadLetterGroup>> {
    let doing = "group dead letters";
    fill_fingerprints(database).await?;
    groups::advance(database).await?;
    let since = |ms: u32| format!("sum(CASE WHEN {{ms:first_seen}} > {{now_ms}} - {ms} THEN 1 ELSE 0 END)");
    let select = format!(
        "SELECT fingerprint, count(*), min({{ms:first_seen}}), max({{ms:last_attempt}}), max(id), {}, {}
         FROM {{p}}dead_letter",
        database.dialect().number.replace('@', &since(3_600_000)),
        database.dialect().number.replace('@', &since(86_400_000)),
    );
    let (template, mut values) = letters(database.dialect(), &select, &filter.clone().or_parked());
    let template = format!(
        "{template} AND fingerprint IS NOT NULL GROUP BY fingerprint ORDER BY count(*) DESC, fingerprint LIMIT ?"
    );
    values.push((limit as u64).into());
    let columns = {
        use Column::{Number, Text};
        &[Text, Number, Number, Number, Number, Number, Number]
    };
    let rows = database.read(database.query(doing, &template, values, columns)).await?;
    let mut found = Vec::new();
    for mut row in rows {
        found.push(DeadLetterGroup {
            fingerprint: row.text()?,
            count: row.count()?,
            first_seen: Timestamp::from_millis(row.number()?),
            last_seen: Timestamp::from_millis(row.number()?),
            sample: row.number()?,
            error_code: String::new(),
            error: String::new(),
            last_hour: row.count()?,
            last_day: row.count()?,
            state: GroupState::Open,
            muted_until: None,
            note: String::new(),
        });
    }
    add_samples(database, &mut found).await?;
    groups::add_statuses(database, &mut found).await?;
    Ok(found)
}

async fn add_samples<D: LetterTables>(database: &D, groups: &mut [DeadLetterGroup]) -> Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let list = placeholders(groups.len());
    let template = format!("SELECT id, error_code, error FROM {{p}}dead_letter WHERE id IN ({list})");
    let values = groups.iter().map(|group| Value::from(group.sample)).collect();
    let columns = &[Column::Number, Column::Text, Column::Text];
    let mut errors = HashMap::new();
    for mut row in database.read(database.query("group dead letters", &template, values, columns)).await? {
        errors.insert(row.number()?, (row.text()?, row.text()?));
    }
    for group in groups {
        (group.error_code, group.error) = errors.remove(&group.sample).unwrap_or_default();
    }
    Ok(())
}

/// Implements [`DeadLetters::ignore`] and [`DeadLetters::release_ignored`].
pub async fn set_ignored<D: LetterTables + DeadLetters>(
    database: &D,
    id: DeadLetterId,
    ignored: bool,
    reason: &str,
    actor: &str,
) -> Result<()> {
    let doing = if ignored { "ignore a dead letter" } else { "release a dead letter" };
    let mut transaction = database.begin().await?;
    let (set, condition) = if ignored { ("TRUE", "NOT ignored") } else { ("FALSE", "ignored") };
    let template = format!(
        "UPDATE {{p}}dead_letter {{primary}} SET ignored = {set} WHERE id = ? AND status = 'parked' AND {condition}"
    );
    let changed = database.execute(&mut transaction, database.statement(doing, &template, vec![id.into()])).await?;
    if changed > 0 {
        let action = if ignored { "ignore" } else { "release" };
        let template = "INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
            SELECT ?, ?, id, message_id, ? FROM {p}dead_letter WHERE id = ?";
        let values = vec![storable_actor(actor).into(), action.into(), storable_text(reason).into(), id.into()];
        database.execute(&mut transaction, database.statement("write the audit trail", template, values)).await?;
        return database.commit(transaction).await;
    }
    drop(transaction);
    let filter = DeadLetterFilter { id: Some(id), ..DeadLetterFilter::default() };
    let found = database.find(&filter, 1).await?.pop();
    match found.map(|letter| letter.status) {
        Some(DeadLetterStatus::Ignored) if ignored => Ok(()),
        Some(DeadLetterStatus::Parked) if !ignored => Ok(()),
        Some(status) => {
            let text = format!("dead letter {id} is {}; only a parked or ignored one can be changed", status.as_str());
            Err(Error::new(ErrorKind::Conflict, text))
        }
        None => Err(Error::new(ErrorKind::NotFound, format!("there is no dead letter {id}"))),
    }
}
