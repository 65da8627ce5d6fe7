use landfall_core::{ArchivedLetter, DeadLetterId, Error, RestoredLetters, Result, Timestamp};

use crate::audit::{storable_actor, storable_text};
use crate::portable::{Cells, Column, LetterTables, Value};

const DOING: &str = "restore a dead letter";

/// Implements [`ArchivableLetters::restore_letters`](landfall_core::ArchivableLetters::restore_letters).
pub async fn restore<D: LetterTables>(
    database: &D,
    letters: &[ArchivedLetter],
    place: &str,
    actor: &str,
) -> Result<RestoredLetters> {
    let mut done = RestoredLetters::default();
    let mut transaction = database.begin().await?;
    for letter in letters {
        if present(database, &mut transaction, letter).await?.is_some() {
            done.present.push(letter.id);
            continue;
        }
        let id = insert(database, &mut transaction, letter).await?;
        restore_history(database, &mut transaction, letter, id).await?;
        let template = "INSERT INTO {p}audit (actor, action, dead_letter_id, message_id, detail)
            VALUES (?, 'restore', ?, {uuid}, ?)";
        let values = vec![
            storable_actor(actor).into(),
            id.into(),
            letter.message_id.clone().into(),
            storable_text(place).into(),
        ];
        let statement = database.statement("write the audit trail", template, values);
        database.execute(&mut transaction, statement).await?;
        done.restored.push(id);
    }
    database.commit(transaction).await?;
    Ok(done)
}

/// Returns the id under which the letter is in the database. A message is one letter of its group; a letter of the
/// relay is a row of the outbox.
async fn present<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    letter: &ArchivedLetter,
) -> Result<Option<DeadLetterId>> {
    let template = "SELECT id FROM {p}dead_letter
        WHERE message_id = {uuid} AND consumer_group = ? AND topic = ? AND coalesce({key}, '') = ?
            AND (consumer_group <> '' OR outbox_id IS NULL OR outbox_id = ?)";
    let values = vec![
        letter.message_id.clone().into(),
        letter.group.clone().into(),
        letter.topic.clone().into(),
        letter.key.clone().unwrap_or_default().into(),
        Value::Number(letter.outbox_id),
    ];
    let rows = fetch(database, connection, template, values).await?;
    rows.into_iter().next().map(|mut row| row.number()).transpose()
}

async fn fetch<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    template: &str,
    values: Vec<Value>,
) -> Result<Vec<Cells>> {
    database.fetch(connection, database.query(DOING, template, values, &[Column::Number])).await
}

/// Returns whether a row may have this id: no other has it, and none will. An id that the database has not assigned
/// yet would collide later.
async fn is_free<D: LetterTables>(database: &D, connection: &mut D::Connection, table: &str, id: i64) -> Result<bool> {
    let issued = database.dialect().issued.replace('@', table);
    // A row if it is not free.
    let template = format!(
        "SELECT id FROM {{p}}{table} WHERE id = ?
         UNION ALL SELECT {issued} FROM (SELECT 1 AS one) unit WHERE {issued} < ?"
    );
    Ok(fetch(database, connection, &template, vec![id.into(), id.into()]).await?.is_empty())
}

async fn insert<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    letter: &ArchivedLetter,
) -> Result<DeadLetterId> {
    let mut columns = "message_id, consumer_group, topic, {key}, sequence, kind, mode, headers, created_at, outbox_id,
        status, discarded, holds_key, error_code, error, attempts, redrives, original_partition, original_offset,
        first_seen, last_attempt, fingerprint, causes, redrive_id, payload, original_payload, restored_at"
        .to_owned();
    let mut places = "{uuid}, ?, ?, ?, ?, ?, ?, {json}, {time}, ?, 'done', ? <> 0, ? <> 0, ?, ?, ?, ?, ?, ?, {time},
        {time}, ?, ?, ?, ?, ?, ?"
        .to_owned();
    let mut values = values(letter);
    if database.dialect().done_at == "done_at" {
        columns.push_str(", done_at");
        places.push_str(", {time}");
        values.push(Value::Number(letter.done_at));
    }
    // Another row of the outbox may have the number of a letter from another database.
    if is_outbox_id_taken(database, connection, letter).await? {
        values[9] = Value::Number(None);
    }
    if is_free(database, connection, "dead_letter", letter.id).await? {
        columns.push_str(", id");
        places.push_str(", ?");
        values.push(letter.id.into());
    }
    let template = format!("INSERT INTO {{p}}dead_letter ({columns}) VALUES ({places})");
    database.execute(connection, database.statement(DOING, &template, values)).await?;
    let lost = || Error::new(landfall_core::ErrorKind::Internal, "a restored dead letter is gone; this is a bug");
    present(database, connection, letter).await?.ok_or_else(lost)
}

fn values(letter: &ArchivedLetter) -> Vec<Value> {
    let text = |text: &Option<String>| Value::Text(text.clone());
    vec![
        letter.message_id.clone().into(),
        letter.group.clone().into(),
        letter.topic.clone().into(),
        text(&letter.key),
        Value::Number(letter.sequence),
        letter.kind.clone().into(),
        letter.mode.clone().into(),
        letter.headers.clone().into(),
        letter.created_at.into(),
        Value::Number(letter.outbox_id),
        i64::from(letter.discarded).into(),
        i64::from(letter.holds_key).into(),
        letter.error_code.clone().into(),
        letter.error.clone().into(),
        letter.attempts.into(),
        letter.redrives.into(),
        Value::Number(letter.original_partition),
        Value::Number(letter.original_offset),
        letter.first_seen.into(),
        letter.last_attempt.into(),
        text(&letter.fingerprint),
        text(&letter.causes),
        text(&letter.redrive_id),
        Value::Bytes(Some(letter.payload.to_vec())),
        Value::Bytes(letter.original_payload.as_ref().map(|payload| payload.to_vec())),
        Timestamp::now().as_millis().into(),
    ]
}

async fn is_outbox_id_taken<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    letter: &ArchivedLetter,
) -> Result<bool> {
    let Some(outbox_id) = letter.outbox_id else { return Ok(false) };
    let template = "SELECT id FROM {p}dead_letter WHERE outbox_id = ?";
    Ok(!fetch(database, connection, template, vec![outbox_id.into()]).await?.is_empty())
}

/// Inserts the rows that the audit trail no longer has.
async fn restore_history<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    letter: &ArchivedLetter,
    id: DeadLetterId,
) -> Result<()> {
    for row in &letter.history {
        let template = "SELECT id FROM {p}audit WHERE dead_letter_id = ? AND action = ? AND actor = ? AND {ms:at} = ?";
        let known = vec![id.into(), row.action.clone().into(), row.actor.clone().into(), row.at.into()];
        if !fetch(database, connection, template, known).await?.is_empty() {
            continue;
        }
        let mut columns = "at, actor, action, dead_letter_id, message_id, detail".to_owned();
        let mut places = "{time}, ?, ?, ?, {uuid}, ?".to_owned();
        let mut values = vec![
            row.at.into(),
            row.actor.clone().into(),
            row.action.clone().into(),
            id.into(),
            letter.message_id.clone().into(),
            row.detail.clone().into(),
        ];
        if is_free(database, connection, "audit", row.id).await? {
            columns.push_str(", id");
            places.push_str(", ?");
            values.push(row.id.into());
        }
        let template = format!("INSERT INTO {{p}}audit ({columns}){{given_id}} VALUES ({places})");
        database.execute(connection, database.statement(DOING, &template, values)).await?;
    }
    Ok(())
}
