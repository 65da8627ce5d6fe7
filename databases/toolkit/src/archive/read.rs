use std::collections::HashMap;
use std::time::Duration;

use landfall_core::{ArchivedAudit, ArchivedLetter, DeadLetterId, Result, Timestamp};

use crate::audit::{storable_actor, storable_text};
use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

/// The payloads of a batch are in memory.
const MAX_PAYLOAD_BYTES: u64 = 16 * 1024 * 1024;

/// Letters per statement.
const CHUNK: usize = 250;

const SELECT: &str = "SELECT id, {uuid:message_id}, consumer_group, topic, {key}, sequence, kind, mode, {json:headers},
        {ms:created_at}, outbox_id, {number:discarded}, {number:holds_key}, error_code, error, {number:attempts},
        {number:redrives}, {number:original_partition}, original_offset, {ms:first_seen}, {ms:last_attempt},
        {ms:{done_at}}, fingerprint, causes, redrive_id, {payload}, original_payload
    FROM {p}dead_letter";

const COLUMNS: &[Column] = {
    use Column::{Bytes, Number, Text};
    &[
        Number, Text, Text, Text, Text, Number, Text, Text, Text, Number, Number, Number, Number, Text, Text, Number,
        Number, Number, Number, Number, Number, Number, Text, Text, Text, Bytes, Bytes,
    ]
};

/// Implements [`ArchivableLetters::old_letters`](landfall_core::ArchivableLetters::old_letters).
pub async fn old<D: LetterTables>(database: &D, age: Duration, at_most: u64) -> Result<Vec<ArchivedLetter>> {
    let ids = old_ids(database, age, at_most).await?;
    let mut letters = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(CHUNK) {
        let values = || chunk.iter().map(|id| Value::from(*id)).collect();
        let template = format!("{SELECT} WHERE id IN ({}) ORDER BY id", placeholders(chunk.len()));
        let query = database.query("read old dead letters", &template, values(), COLUMNS);
        let rows = database.read(query).await?;
        let mut histories = histories(database, chunk.len(), values()).await?;
        for row in rows {
            let mut letter = read_letter(row)?;
            letter.history = histories.remove(&letter.id).unwrap_or_default();
            letters.push(letter);
        }
    }
    Ok(letters)
}

async fn old_ids<D: LetterTables>(database: &D, age: Duration, at_most: u64) -> Result<Vec<DeadLetterId>> {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let before = Timestamp::now().as_millis().saturating_sub(age);
    let template = "SELECT id, {number:length({payload})} FROM {p}dead_letter
        WHERE status = 'done' AND {done_at} < {time} AND (restored_at IS NULL OR restored_at < ?)
        ORDER BY {done_at}, id LIMIT ?";
    let values = vec![before.into(), before.into(), at_most.into()];
    let columns = &[Column::Number, Column::Number];
    let rows = database.read(database.query("list old dead letters", template, values, columns)).await?;
    let (mut ids, mut bytes) = (Vec::new(), 0);
    for mut row in rows {
        let id = row.number()?;
        bytes += row.count()?;
        if bytes > MAX_PAYLOAD_BYTES && !ids.is_empty() {
            break;
        }
        ids.push(id);
    }
    ids.sort_unstable();
    Ok(ids)
}

fn read_letter(mut row: Cells) -> Result<ArchivedLetter> {
    Ok(ArchivedLetter {
        id: row.number()?,
        message_id: row.text()?,
        group: row.text()?,
        topic: row.text()?,
        key: row.text_or_null()?,
        sequence: row.number_or_null()?,
        kind: row.text()?,
        mode: row.text()?,
        headers: row.text()?,
        created_at: row.number()?,
        outbox_id: row.number_or_null()?,
        discarded: row.number()? != 0,
        holds_key: row.number()? != 0,
        error_code: row.text()?,
        error: row.text()?,
        attempts: row.number()?,
        redrives: row.number()?,
        original_partition: row.number_or_null()?,
        original_offset: row.number_or_null()?,
        first_seen: row.number()?,
        last_attempt: row.number()?,
        done_at: row.number_or_null()?,
        fingerprint: row.text_or_null()?,
        causes: row.text_or_null()?,
        redrive_id: row.text_or_null()?,
        payload: row.bytes_or_null()?.unwrap_or_default().into(),
        original_payload: row.bytes_or_null()?.map(Into::into),
        history: Vec::new(),
    })
}

async fn histories<D: LetterTables>(
    database: &D,
    count: usize,
    ids: Vec<Value>,
) -> Result<HashMap<DeadLetterId, Vec<ArchivedAudit>>> {
    let list = placeholders(count);
    let template = format!(
        "SELECT dead_letter_id, id, {{ms:at}}, actor, action, detail FROM {{p}}audit
         WHERE dead_letter_id IN ({list}) ORDER BY id"
    );
    let columns = {
        use Column::{Number, Text};
        &[Number, Number, Number, Text, Text, Text]
    };
    let mut histories: HashMap<_, Vec<_>> = HashMap::new();
    for mut row in database.read(database.query("read the history of dead letters", &template, ids, columns)).await? {
        histories.entry(row.number()?).or_default().push(ArchivedAudit {
            id: row.number()?,
            at: row.number()?,
            actor: row.text()?,
            action: row.text()?,
            detail: row.text()?,
        });
    }
    Ok(histories)
}

/// Implements `remove_archived_letters` of [`ArchivableLetters`](landfall_core::ArchivableLetters).
pub async fn remove<D: LetterTables>(database: &D, ids: &[DeadLetterId], place: &str, actor: &str) -> Result<u64> {
    let mut transaction = database.begin().await?;
    let mut removed = 0;
    for chunk in ids.chunks(CHUNK) {
        let values = chunk.iter().map(|id| Value::from(*id)).collect();
        // Locks them, so that two archivers do not both record the removal of a letter.
        let list = placeholders(chunk.len());
        let template =
            format!("SELECT id FROM {{p}}dead_letter WHERE id IN ({list}) AND status = 'done' ORDER BY id{{lock}}");
        let query = database.query("lock archived dead letters", &template, values, &[Column::Number]);
        let rows = database.fetch(&mut transaction, query).await?;
        let found = rows.into_iter().map(|mut row| row.number()).collect::<Result<Vec<_>>>()?;
        if found.is_empty() {
            continue;
        }
        let list = placeholders(found.len());
        let letters = || found.iter().map(|id| Value::from(*id));
        let template = format!(
            "INSERT INTO {{p}}audit (actor, action, dead_letter_id, message_id, detail)
             SELECT ?, 'archive', id, message_id, ? FROM {{p}}dead_letter WHERE id IN ({list}) ORDER BY id"
        );
        let values = [storable_actor(actor).into(), storable_text(place).into()].into_iter().chain(letters());
        let statement = database.statement("write the audit trail", &template, values.collect());
        database.execute(&mut transaction, statement).await?;
        let template = format!("DELETE FROM {{p}}dead_letter WHERE id IN ({list})");
        let statement = database.statement("remove archived dead letters", &template, letters().collect());
        removed += database.execute(&mut transaction, statement).await?;
    }
    database.commit(transaction).await?;
    Ok(removed)
}
