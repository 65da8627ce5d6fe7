//! What people say about failure groups, on any server.

use std::collections::HashMap;

use landfall_core::{
    DeadLetterGroup, Error, ErrorKind, GroupChange, GroupState, GroupStatus, MessageId, Result, Timestamp,
};

use crate::audit::{storable_actor, storable_text};
use crate::letters::fill_fingerprints;
use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

const COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[Text, Text, Number, Text]
};

/// The actor of changes that need no person.
const LANDFALL: &str = "landfall";

/// Implements [`LetterGroups::change_group`](landfall_core::LetterGroups::change_group).
pub async fn change_group<D: LetterTables>(
    database: &D,
    fingerprint: &str,
    change: GroupChange,
    note: &str,
    actor: &str,
) -> Result<GroupStatus> {
    let until = match change {
        GroupChange::Mute { until } if until <= Timestamp::now() => {
            return Err(Error::invalid(format!("a group cannot be muted until {until}, which is over")));
        }
        GroupChange::Mute { until } => Some(until.as_millis()),
        _ => None,
    };
    fill_fingerprints(database).await?;
    advance(database).await?;
    let mut transaction = database.begin().await?;
    let before = lock(database, &mut transaction, fingerprint).await?;
    let keeps_note = note.is_empty() && change != GroupChange::Note;
    let after = GroupStatus {
        fingerprint: fingerprint.to_owned(),
        state: change.state().unwrap_or(before.state),
        muted_until: if change == GroupChange::Note { before.muted_until } else { until.map(Timestamp::from_millis) },
        note: if keeps_note { before.note.clone() } else { storable_text(note) },
    };
    if after != before {
        let template = "UPDATE {p}dead_letter_group SET state = ?, muted_until = ?, note = ?,
                resolved_at = CASE WHEN ? = 1 THEN {now_ms} ELSE resolved_at END
            WHERE fingerprint = ?";
        let values = vec![
            after.state.as_str().into(),
            Value::Number(after.muted_until.map(Timestamp::as_millis)),
            after.note.clone().into(),
            i64::from(change == GroupChange::Resolve).into(),
            fingerprint.into(),
        ];
        database.execute(&mut transaction, database.statement("change a failure group", template, values)).await?;
        let detail = match after.muted_until {
            Some(until) if change != GroupChange::Note => format!("{fingerprint} until {until}: {note}"),
            _ => format!("{fingerprint}: {note}"),
        };
        audit(database, &mut transaction, fingerprint, change.action(), &detail, actor).await?;
    }
    database.commit(transaction).await?;
    Ok(after)
}

/// Locks the row of a group, which it inserts if a dead letter has the fingerprint.
async fn lock<D: LetterTables>(database: &D, connection: &mut D::Connection, fingerprint: &str) -> Result<GroupStatus> {
    let doing = "lock a failure group";
    let insert = format!(
        "{} INTO {{p}}dead_letter_group (fingerprint)
         SELECT unit.fingerprint FROM (SELECT min(fingerprint) AS fingerprint FROM {{p}}dead_letter
             WHERE fingerprint = ?) unit WHERE unit.fingerprint IS NOT NULL{}",
        database.dialect().insert_new.0,
        database.dialect().insert_new.1,
    );
    database.execute(connection, database.statement(doing, &insert, vec![fingerprint.into()])).await?;
    let template = "SELECT fingerprint, state, muted_until, note FROM {p}dead_letter_group WHERE fingerprint = ?{lock}";
    let query = database.query(doing, template, vec![fingerprint.into()], COLUMNS);
    let found = database.fetch(connection, query).await?.pop().map(read_status).transpose()?;
    found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no dead letter has the fingerprint {fingerprint}")))
}

fn read_status(mut row: Cells) -> Result<GroupStatus> {
    Ok(GroupStatus {
        fingerprint: row.text()?,
        state: row.text()?.parse()?,
        muted_until: row.number_or_null()?.map(Timestamp::from_millis),
        note: row.text()?,
    })
}

/// Opens groups whose mute is over, and marks resolved groups that failed again. Safe at any time and from several
/// processes.
pub(crate) async fn advance<D: LetterTables>(database: &D) -> Result<()> {
    let mute_is_over = "g.state = 'muted' AND g.muted_until <= {now_ms}";
    let failed_again = "g.state = 'resolved' AND EXISTS (
            SELECT 1 FROM {p}dead_letter l WHERE l.fingerprint = g.fingerprint
                AND ({ms:l.first_seen} > g.resolved_at
                    OR (l.status = 'parked' AND {ms:l.last_attempt} > g.resolved_at)))";
    for (condition, state) in [(mute_is_over, GroupState::Open), (failed_again, GroupState::Regressed)] {
        let select = format!("SELECT g.fingerprint FROM {{p}}dead_letter_group g WHERE {condition}");
        let columns = &[Column::Text];
        let found = database.read(database.query("find failure groups", &select, Vec::new(), columns)).await?;
        for mut row in found {
            let fingerprint = row.text()?;
            let mut transaction = database.begin().await?;
            // Looks again under the lock, so that each transition is made and audited once.
            let template = format!("{select} AND g.fingerprint = ?{{lock}}");
            let query = database.query("find failure groups", &template, vec![fingerprint.clone().into()], columns);
            if database.fetch(&mut transaction, query).await?.is_empty() {
                continue;
            }
            let template = "UPDATE {p}dead_letter_group SET state = ?, muted_until = NULL WHERE fingerprint = ?";
            let values = vec![state.as_str().into(), fingerprint.clone().into()];
            database.execute(&mut transaction, database.statement("change a failure group", template, values)).await?;
            let action = if state == GroupState::Open { "group-reopen" } else { "group-regress" };
            audit(database, &mut transaction, &fingerprint, action, &fingerprint, LANDFALL).await?;
            database.commit(transaction).await?;
        }
    }
    Ok(())
}

/// Adds the states and the notes.
pub(crate) async fn add_statuses<D: LetterTables>(database: &D, groups: &mut [DeadLetterGroup]) -> Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let template = format!(
        "SELECT fingerprint, state, muted_until, note FROM {{p}}dead_letter_group WHERE fingerprint IN ({})",
        placeholders(groups.len())
    );
    let values = groups.iter().map(|group| group.fingerprint.clone().into()).collect();
    let mut known = HashMap::new();
    for row in database.read(database.query("read failure groups", &template, values, COLUMNS)).await? {
        let status = read_status(row)?;
        known.insert(status.fingerprint.clone(), status);
    }
    for group in groups {
        if let Some(status) = known.remove(&group.fingerprint) {
            (group.state, group.muted_until, group.note) = (status.state, status.muted_until, status.note);
        }
    }
    Ok(())
}

/// A group is no message, so its rows have an id that is derived from the fingerprint.
async fn audit<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    fingerprint: &str,
    action: &str,
    detail: &str,
    actor: &str,
) -> Result<()> {
    let template = "INSERT INTO {p}audit (actor, action, message_id, detail) VALUES (?, ?, {uuid}, ?)";
    let id = MessageId::from_business("failure group", fingerprint).to_string();
    let values = vec![storable_actor(actor).into(), action.into(), id.into(), storable_text(detail).into()];
    database.execute(connection, database.statement("write the audit trail", template, values)).await?;
    Ok(())
}
