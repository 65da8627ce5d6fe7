//! A redrive without a job.

use std::collections::{BTreeMap, HashSet};

use landfall_core::{
    DeadLetterId, DeadLetterStatus, ImmediateRedrive, ImmediatelyRedriven, RedriveGuards, Redriven, Result, Skip,
    Timestamp,
};

use super::dispatch::Letter;
use super::rehearse::{read, statuses};
use crate::audit::{storable_actor, storable_text};
use crate::letters::prepare;
use crate::portable::{Column, LetterTables, letters};

/// Letters per statement.
const CHUNK: usize = 250;

/// Attempts of a transaction that the server rolls back.
const ATTEMPTS: u32 = 5;

/// Implements [`Redrives::redrive_at_once`](landfall_core::Redrives::redrive_at_once).
pub async fn at_once<D: LetterTables>(
    database: &D,
    request: &ImmediateRedrive,
    actor: &str,
) -> Result<ImmediatelyRedriven> {
    prepare(database, &request.filter).await?;
    let mut attempts = 1;
    loop {
        match attempt(database, request, actor).await {
            Err(error) if attempts < ATTEMPTS && database.is_rolled_back(&error) => attempts += 1,
            outcome => return outcome,
        }
    }
}

async fn attempt<D: LetterTables>(
    database: &D,
    request: &ImmediateRedrive,
    actor: &str,
) -> Result<ImmediatelyRedriven> {
    let mut transaction = database.begin().await?;
    let connection = &mut *transaction;
    let mut choice = Choice { limit: request.limit.unwrap_or(usize::MAX), ..Choice::default() };
    let matching = matching(database, connection, request).await?;
    for chunk in matching.chunks(CHUNK) {
        choice.add(database, connection, chunk, request.guards.as_ref()).await?;
    }
    let (actor, detail) = (storable_actor(actor), storable_text(&request.reason));
    let redriven = database.redrive_in(connection, &choice.chosen, &actor, &detail).await?.redriven;
    let known: HashSet<DeadLetterId> = redriven.iter().copied().collect();
    // Another session has changed these meanwhile.
    for id in choice.chosen.iter().filter(|id| !known.contains(id)) {
        choice.skipped.entry(Skip::NotParked.as_str()).or_default().push(*id);
    }
    if redriven.is_empty() {
        database.commit_seen(transaction).await?;
    } else {
        database.commit(transaction).await?;
        // For letters that went back into the outbox.
        database.wake();
    }
    let mut skipped: Vec<DeadLetterId> = choice.skipped.values().flatten().copied().collect();
    skipped.sort_unstable();
    Ok(ImmediatelyRedriven { letters: Redriven { redriven, skipped }, reasons: choice.skipped })
}

/// A matching letter and its status.
type Matching = (DeadLetterId, DeadLetterStatus);

/// Returns the matching letters, the oldest first.
async fn matching<D: LetterTables>(
    database: &D,
    connection: &mut D::Connection,
    request: &ImmediateRedrive,
) -> Result<Vec<Matching>> {
    let select = "SELECT id, status, {number:ignored} FROM {p}dead_letter";
    let (template, values) = letters(database.dialect(), select, &request.filter);
    let columns = &[Column::Number, Column::Text, Column::Number];
    let query = database.query("select dead letters to redrive", &format!("{template} ORDER BY id"), values, columns);
    let rows = database.fetch(connection, query).await?;
    let read = |mut row: crate::portable::Cells| {
        let (id, status, is_ignored) = (row.number()?, row.text()?.parse()?, row.number()? != 0);
        let is_ignored = is_ignored && status == DeadLetterStatus::Parked;
        Ok((id, if is_ignored { DeadLetterStatus::Ignored } else { status }))
    };
    rows.into_iter().map(read).collect()
}

/// Which letters are redriven, and why others are not.
#[derive(Default)]
struct Choice {
    limit: usize,
    chosen: Vec<DeadLetterId>,
    is_chosen: HashSet<DeadLetterId>,
    skipped: BTreeMap<&'static str, Vec<DeadLetterId>>,
}

impl Choice {
    async fn add<D: LetterTables>(
        &mut self,
        database: &D,
        connection: &mut D::Connection,
        chunk: &[Matching],
        guards: Option<&RedriveGuards>,
    ) -> Result<()> {
        let parked: Vec<DeadLetterId> =
            chunk.iter().filter(|(_, status)| *status == DeadLetterStatus::Parked).map(|(id, _)| *id).collect();
        let guarded = match guards {
            Some(_) if self.chosen.len() < self.limit => read(database, connection, &parked).await?,
            _ => Default::default(),
        };
        let in_front: HashSet<DeadLetterId> = guarded.values().filter_map(|letter| letter.predecessor).collect();
        let statuses = statuses(database, connection, in_front).await?;
        for (id, status) in chunk {
            if self.chosen.len() >= self.limit {
                break;
            }
            let skip = match (status, guards) {
                (DeadLetterStatus::Parked, None) => None,
                (DeadLetterStatus::Parked, Some(guards)) => self.refuse(guarded.get(id), &statuses, guards),
                (DeadLetterStatus::Ignored, _) => Some(Skip::Ignored),
                _ => Some(Skip::NotParked),
            };
            match skip {
                Some(skip) => self.skipped.entry(skip.as_str()).or_default().push(*id),
                None => {
                    self.chosen.push(*id);
                    self.is_chosen.insert(*id);
                }
            }
        }
        Ok(())
    }

    /// Returns why a parked letter is not redriven. Its predecessor has a lower id, so it is decided before.
    fn refuse(
        &self,
        letter: Option<&Letter>,
        statuses: &std::collections::HashMap<DeadLetterId, DeadLetterStatus>,
        guards: &RedriveGuards,
    ) -> Option<Skip> {
        // It is gone since it was selected.
        let Some(letter) = letter else { return Some(Skip::NotParked) };
        letter.refuse(guards, Timestamp::now()).or_else(|| {
            let predecessor = letter.predecessor?;
            let is_left = statuses.get(&predecessor) == Some(&DeadLetterStatus::Parked);
            (is_left && !self.is_chosen.contains(&predecessor)).then_some(Skip::Predecessor)
        })
    }
}
