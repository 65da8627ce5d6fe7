//! Hands letters back to their consumers and to the relay.

use std::collections::{HashMap, HashSet};

use landfall_core::adapter::Epoch;
use landfall_core::{
    DeadLetterId, DeadLetterStatus, DispatchResult, Guarded, KeyRuleKind, RedriveGuards, RedriveId, RedriveState,
    Result, Skip, Timestamp,
};

use super::{LockedJob, lock_job, now};
use crate::audit::storable_text;
use crate::key_rules::RULE;
use crate::portable::{Cells, Column, LetterTables, Value, placeholders};

/// Letters that are looked at together.
const PAGE: usize = 250;

/// The most pages of one call. Letters that wait for their predecessors may fill a page.
const MAX_PAGES: usize = 40;

/// A letter, the rule of its key, and the oldest letter that it must wait for.
pub(super) fn letter_columns() -> String {
    format!(
        "l.id, l.status, {{number:l.ignored}}, {{number:l.redrives}}, {{ms:l.first_seen}}, {{ms:l.last_attempt}},
         {RULE},
         (SELECT min(e.id) FROM {{p}}dead_letter e
          WHERE {{open:e}} AND e.consumer_group = l.consumer_group AND e.topic = l.topic AND e.{{key}} = l.{{key}}
            AND e.id < l.id AND e.holds_key)"
    )
}

pub(super) const LETTER_COLUMNS: &[Column] = {
    use Column::{Number, Text};
    &[Number, Number, Text, Number, Number, Number, Number, Text, Number]
};

/// A waiting letter of a job.
pub(super) struct Waiting {
    pub(super) id: DeadLetterId,
    /// `None` if it is no longer stored.
    pub(super) letter: Option<Letter>,
}

pub(super) struct Letter {
    guarded: Guarded,
    rule: Option<KeyRuleKind>,
    pub(super) predecessor: Option<DeadLetterId>,
}

impl Letter {
    /// Returns why it is not redriven. What people said about its key comes after the state of the letter.
    pub(super) fn refuse(&self, guards: &RedriveGuards, now: Timestamp) -> Option<Skip> {
        let guards = match self.rule {
            Some(KeyRuleKind::Allowed) => &RedriveGuards { block_after: u32::MAX, ..guards.clone() },
            _ => guards,
        };
        match (guards.refuse(self.guarded, now), self.rule) {
            (refused @ Some(Skip::NotParked | Skip::Ignored), _) => refused,
            (_, Some(KeyRuleKind::Blocked)) => Some(Skip::Blocked),
            (refused, _) => refused,
        }
    }
}

/// What happens to a letter now.
enum Decision {
    Dispatch,
    /// Looked at again by a later call.
    Wait,
    Skip(Skip),
    Missing,
}

/// Implements [`RedriveQueue::dispatch_redrive`](landfall_core::RedriveQueue::dispatch_redrive).
pub async fn dispatch<D: LetterTables>(
    database: &D,
    id: RedriveId,
    epoch: Epoch,
    limit: usize,
    guards: &RedriveGuards,
) -> Result<DispatchResult> {
    let mut transaction = database.begin().await?;
    let LockedJob { job, actor, reason } = lock_job(database, &mut transaction, id, epoch).await?;
    let detail = storable_text(format!("redrive {id}: {reason}").trim_end_matches([':', ' ']));
    let mut result = DispatchResult::default();
    let mut after = DeadLetterId::MIN;
    for _ in 0..MAX_PAGES {
        if job.state != RedriveState::Running || result.dispatched.len() >= limit {
            break;
        }
        let page = waiting(database, &mut transaction, id, after).await?;
        let Some(last) = page.last() else { break };
        after = last.id;
        let is_last = page.len() < PAGE;
        let room = limit - result.dispatched.len();
        let decided = decide(database, &mut transaction, id, page, guards).await?;
        let ready = decided.iter().filter(|(_, decision)| matches!(decision, Decision::Dispatch));
        let chosen: Vec<DeadLetterId> = ready.map(|(id, _)| *id).take(room).collect();
        // Letters that another session has just changed stay as they are; a later call finds out.
        let redriven = database.redrive_in(&mut transaction, &chosen, &actor, &detail).await?.redriven;
        mark_dispatched(database, &mut transaction, id, &redriven).await?;
        result.settled += mark_settled(database, &mut transaction, id, &decided).await?;
        result.dispatched.extend(redriven);
        if is_last {
            break;
        }
    }
    if result.dispatched.is_empty() && result.settled == 0 {
        database.commit_seen(transaction).await?;
    } else {
        database.commit(transaction).await?;
        // For letters that went back into the outbox.
        database.wake();
    }
    Ok(result)
}

async fn waiting<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    after: DeadLetterId,
) -> Result<Vec<Waiting>> {
    let values = vec![id.to_string().into(), after.into(), (PAGE as u64).into()];
    let template = format!(
        "SELECT i.dead_letter_id, {}
         FROM {{p}}redrive_item i LEFT JOIN {{p}}dead_letter l ON l.id = i.dead_letter_id
         WHERE i.redrive_id = ? AND i.state = 'waiting' AND i.dead_letter_id > ?
         ORDER BY i.dead_letter_id LIMIT ?",
        letter_columns()
    );
    let query = database.query("read the letters of a redrive job", &template, values, LETTER_COLUMNS);
    database.fetch(connection, query).await?.into_iter().map(read_waiting).collect()
}

pub(super) fn read_waiting(mut row: Cells) -> Result<Waiting> {
    let id = row.number()?;
    if row.number_or_null()?.is_none() {
        return Ok(Waiting { id, letter: None });
    }
    let (status, is_ignored) = (row.text()?.parse()?, row.number()? != 0);
    let status = match status {
        DeadLetterStatus::Parked if is_ignored => DeadLetterStatus::Ignored,
        status => status,
    };
    let redrives = u32::try_from(row.count()?).unwrap_or(u32::MAX);
    let (first_seen, last_attempt) = (Timestamp::from_millis(row.number()?), Timestamp::from_millis(row.number()?));
    let guarded = Guarded { status, redrives, first_seen, last_attempt };
    let rule = row.text_or_null()?.map(|rule| rule.parse()).transpose()?;
    Ok(Waiting { id, letter: Some(Letter { guarded, rule, predecessor: row.number_or_null()? }) })
}

async fn decide<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    page: Vec<Waiting>,
    guards: &RedriveGuards,
) -> Result<Vec<(DeadLetterId, Decision)>> {
    let predecessors: HashSet<DeadLetterId> =
        page.iter().filter_map(|waiting| waiting.letter.as_ref()?.predecessor).collect();
    let may_end = predecessors_that_may_end(database, connection, id, predecessors).await?;
    let now = Timestamp::now();
    let decision = |letter: Option<Letter>| {
        let Some(letter) = letter else { return Decision::Missing };
        if let Some(skip) = letter.refuse(guards, now) {
            return Decision::Skip(skip);
        }
        match letter.predecessor {
            None => Decision::Dispatch,
            Some(predecessor) if may_end.get(&predecessor).copied().unwrap_or(true) => Decision::Wait,
            Some(_) => Decision::Skip(Skip::Predecessor),
        }
    };
    Ok(page.into_iter().map(|waiting| (waiting.id, decision(waiting.letter))).collect())
}

/// Returns whether each predecessor may be done without another action of a person: it is being handled, or this job
/// has not begun it.
async fn predecessors_that_may_end<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    predecessors: HashSet<DeadLetterId>,
) -> Result<HashMap<DeadLetterId, bool>> {
    if predecessors.is_empty() {
        return Ok(HashMap::new());
    }
    let template = format!(
        "SELECT l.id, l.status, i.state FROM {{p}}dead_letter l
         LEFT JOIN {{p}}redrive_item i ON i.redrive_id = ? AND i.dead_letter_id = l.id
         WHERE l.id IN ({})",
        placeholders(predecessors.len())
    );
    let mut values = vec![Value::from(id.to_string())];
    values.extend(predecessors.into_iter().map(Value::from));
    let columns = &[Column::Number, Column::Text, Column::Text];
    let rows =
        database.fetch(connection, database.query("read the predecessors of letters", &template, values, columns));
    let read = |mut row: Cells| {
        let (letter, status, item) = (row.number()?, row.text()?, row.text_or_null()?);
        Ok((letter, status != DeadLetterStatus::Parked.as_str() || item.as_deref() == Some("waiting")))
    };
    rows.await?.into_iter().map(read).collect()
}

async fn mark_dispatched<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    letters: &[DeadLetterId],
) -> Result<()> {
    let doing = "mark the letters of a redrive job";
    if letters.is_empty() {
        return Ok(());
    }
    let list = placeholders(letters.len());
    let with_job = || {
        let mut values = vec![Value::from(id.to_string())];
        values.extend(letters.iter().map(|letter| Value::from(*letter)));
        values
    };
    for template in [
        format!("UPDATE {{p}}dead_letter {{primary}} SET redrive_id = ? WHERE id IN ({list})"),
        format!(
            "UPDATE {{p}}redrive_item {{primary}} SET state = 'dispatched'
             WHERE redrive_id = ? AND dead_letter_id IN ({list})"
        ),
    ] {
        database.execute(connection, database.statement(doing, &template, with_job())).await?;
    }
    let template = "UPDATE {p}redrive SET in_flight = in_flight + ?, updated_at = ? WHERE id = ?";
    let values = vec![(letters.len() as u64).into(), now(), id.to_string().into()];
    database.execute(connection, database.statement(doing, template, values)).await?;
    Ok(())
}

/// Settles the letters that are skipped or missing, and returns how many.
async fn mark_settled<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    id: RedriveId,
    decided: &[(DeadLetterId, Decision)],
) -> Result<u64> {
    let doing = "mark the letters of a redrive job";
    let mut count = 0;
    for (letter, decision) in decided {
        let (state, detail) = match decision {
            Decision::Dispatch | Decision::Wait => continue,
            Decision::Skip(skip) => ("skipped", Some(skip.as_str().to_owned())),
            Decision::Missing => ("missing", None),
        };
        let template = "UPDATE {p}redrive_item SET state = ?, detail = ?
            WHERE redrive_id = ? AND dead_letter_id = ? AND state = 'waiting'";
        let values = vec![state.into(), Value::Text(detail), id.to_string().into(), (*letter).into()];
        let changed = database.execute(connection, database.statement(doing, template, values)).await?;
        let template = format!("UPDATE {{p}}redrive SET {state} = {state} + ?, updated_at = ? WHERE id = ?");
        let values = vec![changed.into(), now(), id.to_string().into()];
        database.execute(connection, database.statement(doing, &template, values)).await?;
        count += changed;
    }
    Ok(count)
}
