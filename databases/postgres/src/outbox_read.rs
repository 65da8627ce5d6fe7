//! Reading the next batch: the rest of an open window, or a new one, and what waits and is due.

use std::collections::{BTreeSet, VecDeque};

use landfall_core::{Error, ErrorKind, Mode, OutboxEntry, Result, RowId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::cursor::{Cursor, Group, Held, Window};
use crate::outbox_settle::Plan;
use crate::read_ahead::{ReadAhead, Stretch};
use crate::snapshot::Snapshot;
use crate::{Postgres, row};

/// Ids further apart than this, on average, are looked up one by one.
pub(crate) const SPREAD: i64 = 8;
/// How many ids a walk looks at for each row that is asked for, at first and at most.
const SPAN: i64 = 16;
const SPAN_MOST: i64 = 1 << 20;

pub(crate) fn span(limit: usize) -> i64 {
    SPAN.saturating_mul(limit as i64).min(SPAN_MOST)
}

/// What a statement found: rows, each with whether its key is blocked, and whether any key may be.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) rows: Vec<(OutboxEntry, bool)>,
    pub(crate) troubled: bool,
    /// Whether they are the rest of a window that was opened before.
    rest: bool,
    /// Whether new windows were looked for.
    looked: bool,
}

impl Postgres {
    /// Makes the cursor stand for these leases; what it knew about others is loaded when they are asked for.
    pub(crate) async fn follow(&self, cursor: &mut Cursor, held: Vec<Held>) -> Result<()> {
        if cursor.held == held && !cursor.groups.is_empty() {
            return Ok(());
        }
        self.feel_at_home().await?;
        let doing = "read how far the relays have come";
        let shards: Vec<i16> = held.iter().map(|held| held.shard).collect();
        let mut session = self.session().await?;
        let life: Uuid = self
            .query_scalar(&self.statements().life)
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        let rows = self.query(&self.statements().places).bind(&shards).fetch_all(session.connection()).await;
        let rows = rows.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        cursor.forget();
        cursor.life = life;
        for row in rows {
            cursor.groups.push(group(&row)?);
        }
        cursor.merge();
        cursor.held = held;
        Ok(())
    }

    pub(crate) async fn read(&self, cursor: &mut Cursor, limit: usize) -> Result<Vec<OutboxEntry>> {
        cursor.waiting.clear();
        cursor.fragile.clear();
        let mut batch = Vec::new();
        let mut troubled = false;
        let rest = loop {
            let found = self.read_window(cursor, limit).await?;
            troubled |= found.troubled;
            if found.rows.is_empty() {
                break false;
            }
            let blocked: Vec<RowId> =
                found.rows.iter().filter(|(_, blocked)| *blocked).map(|(row, _)| row.row).collect();
            batch = found.rows.into_iter().filter(|(_, blocked)| !blocked).map(|(entry, _)| entry).collect();
            if !blocked.is_empty() && !self.set_aside(cursor, &blocked).await? {
                // Somebody else has moved these shards on, and may be about to send what was just read.
                return Ok(Vec::new());
            }
            if !batch.is_empty() {
                break found.rest;
            }
        };
        if rest && batch.len() < limit {
            let ahead = self.look_ahead(cursor, &batch, limit - batch.len()).await?;
            batch.extend(ahead);
        }
        if troubled {
            let mut due = self.read_due(cursor, limit).await?;
            // Neither stands still for the other.
            due.truncate(limit.saturating_sub(batch.len()).max(limit.div_ceil(2)));
            cursor.waiting.extend(due.iter().map(|entry| entry.row));
            due.append(&mut batch);
            batch = due;
        }
        batch.truncate(limit);
        let is_fragile =
            |entry: &&OutboxEntry| entry.message.as_ref().map_or(true, |message| message.mode == Mode::AtMostOnce);
        cursor.fragile.extend(batch.iter().filter(is_fragile).map(|entry| entry.row));
        Ok(batch)
    }

    /// Rows of one or several windows; nothing only if there is nothing.
    async fn read_window(&self, cursor: &mut Cursor, limit: usize) -> Result<Found> {
        cursor.turn = cursor.turn.wrapping_add(1);
        let were_open = cursor.groups.iter().any(|group| group.window.is_some());
        // New windows and those that are open take turns, so that a long one does not hold up the others. After both,
        // one that turned out to be long is open, and one that turned out to be through has a successor.
        let fresh_first = cursor.turn.is_multiple_of(2);
        let mut found = Found::default();
        for fresh in [fresh_first, !fresh_first, true, false] {
            if fresh && found.looked && !were_open {
                continue;
            }
            let part = if fresh { self.open_windows(cursor, limit).await? } else { self.go_on(cursor, limit).await? };
            found.looked |= fresh;
            found.troubled |= part.troubled;
            if !part.rows.is_empty() {
                (found.rows, found.rest) = (part.rows, !fresh);
                break;
            }
        }
        Ok(found)
    }

    /// The next rows of a window that is open.
    async fn go_on(&self, cursor: &mut Cursor, limit: usize) -> Result<Found> {
        let (count, life) = (cursor.groups.len(), cursor.life);
        let mut found = Found::default();
        cursor.ahead.is_worth_it = cursor.groups.iter().filter(|group| group.window.is_some()).count() == 1;
        for step in 0..count {
            let group = &mut cursor.groups[(cursor.turn / 2 + step) % count];
            while group.window.is_some() && found.rows.is_empty() {
                let part = self.read_on(group, &mut cursor.ahead, life, limit).await?;
                found.troubled |= part.troubled;
                found.rows = part.rows;
            }
            if !found.rows.is_empty() {
                break;
            }
        }
        cursor.merge();
        Ok(found)
    }

    async fn read_on(&self, group: &mut Group, ahead: &mut ReadAhead, life: Uuid, limit: usize) -> Result<Found> {
        let known: Vec<RowId> = group.unsettled().take(limit).collect();
        let mut found = Found::default();
        if !known.is_empty() {
            found = match group.stretch_of(&known) {
                Some(stretch) => self.walk_on(group, &stretch, ahead, life, limit).await?,
                None => self.pick(&known, life).await?,
            };
            found.rows.retain(|(entry, _)| known.binary_search(&entry.row).is_ok());
            // What is not there any more was removed by others: competing relays, or housekeeping.
            let is_there = |id: &RowId| found.rows.binary_search_by_key(id, |(entry, _)| entry.row).is_ok();
            group.done.extend(known.iter().filter(|id| !is_there(id)));
            group.advance();
        }
        let is_long = |window: &Window| window.ids.len() >= 4 * limit;
        while found.rows.len() < limit
            && group.window.as_ref().is_some_and(|window| window.scanned_to < RowId::MAX && !is_long(window))
        {
            let more = self.scan(group, ahead, life, limit - found.rows.len()).await?;
            found.troubled |= more.troubled;
            found.rows.extend(more.rows);
        }
        Ok(found)
    }

    /// Walks on from where the window was read to. Ids may lie apart (other shards, what was rolled back, what was
    /// settled before), so a walk that meets nothing makes a jump.
    async fn scan(&self, group: &mut Group, ahead: &mut ReadAhead, life: Uuid, limit: usize) -> Result<Found> {
        let Some(window) = &group.window else { return Ok(Found::default()) };
        let mut from = window.scanned_to;
        let mut span = span(limit);
        if from == RowId::MIN {
            match self.jump(group, from).await? {
                Some(id) => from = id - 1,
                None => from = RowId::MAX,
            }
        }
        let mut found = Found::default();
        while from < RowId::MAX && found.rows.is_empty() {
            let upto = from.saturating_add(span);
            let Some(stretch) = group.stretch(from, upto, limit as i64) else { break };
            found = self.walk_on(group, &stretch, ahead, life, limit).await?;
            from = match found.rows.last() {
                Some((last, _)) if found.rows.len() >= limit => last.row,
                Some(_) => upto,
                None => match self.jump(group, upto).await? {
                    Some(id) => id - 1,
                    None => RowId::MAX,
                },
            };
            span = (span * 2).min(SPAN_MOST);
        }
        if let Some(window) = &mut group.window {
            window.ids.extend(found.rows.iter().map(|(entry, _)| entry.row));
            window.scanned_to = from;
        }
        group.advance();
        found.rows.retain(|(entry, _)| group.knows(entry.row));
        Ok(found)
    }

    /// Reads a stretch, unless it was read ahead, and begins with the next one.
    async fn walk_on(
        &self,
        group: &Group,
        stretch: &Stretch,
        ahead: &mut ReadAhead,
        life: Uuid,
        limit: usize,
    ) -> Result<Found> {
        let rows = match ahead.take(stretch).await {
            Some(rows) => rows,
            None => self.walk(stretch).await?,
        };
        self.read_ahead(ahead, group, &rows, limit);
        self.messages(&rows, life)
    }

    pub(crate) async fn walk(&self, stretch: &Stretch) -> Result<Vec<PgRow>> {
        let doing = "read the outbox";
        let mut session = self.session().await?;
        let rows = self
            .query(&self.statements().walk)
            .bind(&stretch.shards)
            .bind(&stretch.s1)
            .bind(&stretch.s2)
            .bind(stretch.after)
            .bind(stretch.upto)
            .bind(stretch.at_most)
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(rows)
    }

    async fn pick(&self, ids: &[RowId], life: Uuid) -> Result<Found> {
        let doing = "read the outbox";
        let mut session = self.session().await?;
        let rows = self.query(&self.statements().pick).bind(ids).fetch_all(session.connection()).await;
        let rows = rows.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        self.messages(&rows, life)
    }

    async fn jump(&self, group: &Group, after: RowId) -> Result<Option<RowId>> {
        let Some(window) = &group.window else { return Ok(None) };
        let doing = "read the outbox";
        let mut session = self.session().await?;
        let id = self
            .query_scalar(&self.statements().jump)
            .bind(&group.shards)
            .bind(group.s1.as_str())
            .bind(window.s2.as_str())
            .bind(after)
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(id)
    }

    /// The rows of `walk` and `pick`, of which the first is not a message.
    fn messages(&self, rows: &[PgRow], life: Uuid) -> Result<Found> {
        let doing = "read the outbox";
        let mut found = Found { rows: Vec::with_capacity(rows.len()), ..Found::default() };
        for row in rows {
            if row.try_get::<Option<RowId>, _>(0).map_err(self.could_not(doing))?.is_some() {
                found.rows.push(row::entry(row).map_err(self.could_not(doing))?);
            } else {
                found.troubled = row.try_get(12).map_err(self.could_not(doing))?;
                self.is_alive(row, life)?;
            }
        }
        Ok(found)
    }

    /// Whether the server has not crashed since the cursor was loaded. If it has, what the cursor knows may be about
    /// transactions that it has forgotten, whose ids are given out again.
    pub(crate) fn is_alive(&self, header: &PgRow, life: Uuid) -> Result<()> {
        let now: Option<Uuid> = header.try_get(3).map_err(self.could_not("read the outbox"))?;
        if now == Some(life) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("PostgreSQL at {} has recovered from a crash", self.inner.place),
        ))
    }

    async fn read_due(&self, cursor: &Cursor, limit: usize) -> Result<Vec<OutboxEntry>> {
        let doing = "read what waits";
        let mut session = self.session().await?;
        let rows = self
            .query(&self.statements().due)
            .bind(cursor.shards())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        rows.iter().map(|row| Ok(row::entry(row)?.0)).collect::<sqlx::Result<_>>().map_err(self.could_not(doing))
    }

    /// Messages whose keys are blocked leave the window and wait behind those that block them. False if nothing was done
    /// because the cursor was behind.
    async fn set_aside(&self, cursor: &mut Cursor, rows: &[RowId]) -> Result<bool> {
        self.carry_out(cursor, &Plan::aside(rows.to_vec())).await.map(|answer| answer.is_some())
    }
}

/// A row of `places`.
fn group(row: &PgRow) -> Result<Group> {
    let snapshot = |text: &str| Snapshot::parse(text);
    let s2: Option<&str> = row.try_get(3).map_err(row::undecodable)?;
    let last_id: Option<RowId> = row.try_get(4).map_err(row::undecodable)?;
    let window = match s2 {
        Some(s2) => {
            let last_id = last_id.unwrap_or(RowId::MIN);
            Some(Window { s2: snapshot(s2)?, last_id, ids: VecDeque::new(), scanned_to: last_id })
        }
        None => None,
    };
    Ok(Group {
        shards: row.try_get(0).map_err(row::undecodable)?,
        n: row.try_get(1).map_err(row::undecodable)?,
        s1: snapshot(row.try_get(2).map_err(row::undecodable)?)?,
        window,
        done: row.try_get::<Vec<RowId>, _>(5).map_err(row::undecodable)?.into_iter().collect::<BTreeSet<_>>(),
    })
}
