//! Settling: the relay's decisions become new rows of the progress table and of the waiting table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use landfall_core::adapter::{Decision, Lease, Settlement};
use landfall_core::{Error, ErrorKind, Result, RowId};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::settle_call::{Park, Retry, SettleArguments};
use super::window::{Cursor, ShardLease, SnapshotWindow};
use crate::{Postgres, row};

/// The longest delay that is stored, so that no interval overflows.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Attempts to settle with a reloaded cursor. A cursor that is behind more often than this is a sign of another fault.
const ATTEMPTS: usize = 20;

/// Settlements, sorted by what they change.
#[derive(Default)]
pub(crate) struct Changes {
    /// Settled rows of windows.
    settled: Vec<SettledRow>,
    /// Rows of windows that leave them to wait, because an earlier message of their key waits.
    blocked: Vec<RowId>,
    /// Published rows of the waiting table.
    published_waiting: Vec<RowId>,
    retries: Vec<Retry>,
    parks: Vec<Park>,
    /// Whether the changes must survive a crash of the server.
    is_durable: bool,
}

struct SettledRow {
    id: RowId,
    /// Index of its window in the cursor.
    window: usize,
    is_published: bool,
}

/// Where a row is stored.
#[derive(Clone, Copy)]
pub(crate) enum RowLocation {
    /// Unsettled, in the cursor's window with this index.
    Window(usize),
    /// In the outbox, locked by a claim.
    Claimed,
    /// In the waiting table.
    Waiting,
}

impl Postgres {
    pub(crate) async fn settle_all(
        &self,
        cursor: &mut Cursor,
        leases: &[Lease],
        settlements: &[Settlement],
    ) -> Result<Vec<RowId>> {
        let mut leases = ShardLease::from_leases(leases);
        for _ in 0..ATTEMPTS {
            if leases.is_empty() || settlements.is_empty() {
                return Ok(Vec::new());
            }
            self.load(cursor, leases.clone()).await?;
            let changes = self.changes(cursor, settlements).await?;
            if changes.is_empty() {
                return Ok(Vec::new());
            }
            if let Some(changed) = self.apply(cursor, &changes).await? {
                return Ok(changed);
            }
            leases = self.still_held(leases).await?;
        }
        let sentence = format!("another relay moved the outbox on before each of {ATTEMPTS} attempts to settle it");
        Err(Error::new(ErrorKind::Unavailable, sentence))
    }

    async fn changes(&self, cursor: &Cursor, settlements: &[Settlement]) -> Result<Changes> {
        let mut locations: Vec<Option<RowLocation>> =
            settlements.iter().map(|settlement| known_location(cursor, settlement.row)).collect();
        // Not handed out by this cursor, or the cursor was loaded again since.
        let unknown: Vec<RowId> = settlements
            .iter()
            .zip(&locations)
            .filter(|(_, location)| location.is_none())
            .map(|(settlement, _)| settlement.row)
            .collect();
        if !unknown.is_empty() {
            let found = self.locate(cursor, &unknown).await?;
            for (settlement, location) in settlements.iter().zip(&mut locations) {
                *location = location.or_else(|| found.get(&settlement.row).copied());
            }
        }
        let mut changes = Changes { is_durable: !unknown.is_empty(), ..Changes::default() };
        // Rows in the order they were handed out have no duplicates.
        let mut seen = (!settlements.is_sorted_by(|one, next| one.row < next.row)).then(HashSet::new);
        for (Settlement { row, decision, .. }, location) in settlements.iter().zip(locations) {
            let is_first = seen.as_mut().is_none_or(|seen| seen.insert(*row));
            if let Some(location) = location.filter(|_| is_first) {
                changes.is_durable |= cursor.unrepeatable.contains(row);
                changes.add(*row, location, decision);
            }
        }
        Ok(changes)
    }

    /// Looks up rows that the cursor does not know.
    async fn locate(&self, cursor: &Cursor, rows: &[RowId]) -> Result<HashMap<RowId, RowLocation>> {
        let doing = "locate rows of the outbox";
        let query = self.query(&self.statements().locate).bind(rows).bind(cursor.shards());
        let mut found = HashMap::with_capacity(rows.len());
        for row in &self.rows(doing, query).await? {
            let id: RowId = row.try_get("id").map_err(self.could_not(doing))?;
            let shard: i16 = row.try_get("shard").map_err(self.could_not(doing))?;
            let xid: Option<i64> = row.try_get("xid").map_err(self.could_not(doing))?;
            let window = cursor.windows.iter().position(|window| window.shards.contains(&shard));
            match (xid, window) {
                (None, _) => drop(found.insert(id, RowLocation::Waiting)),
                // A waiting message is in both tables: unsettled there, settled here.
                (Some(xid), Some(at)) if !cursor.windows[at].has_settled(id, xid as u64) => {
                    found.entry(id).or_insert(RowLocation::Window(at));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Applies the changes under the cursor's leases and returns the rows they changed. Returns `None`, and changes
    /// nothing, if the cursor is behind or a lease was lost: the cursor must be loaded again.
    pub(crate) async fn apply(&self, cursor: &mut Cursor, changes: &Changes) -> Result<Option<Vec<RowId>>> {
        if changes.may_block_keys() {
            cursor.prefetch.discard();
        }
        let mut advanced = changes.advanced_windows(cursor);
        let progress: Vec<_> = advanced
            .values_mut()
            .map(|(window, published)| {
                window.advance();
                window.to_progress(*published)
            })
            .collect();
        let doing = "settle the outbox";
        let settle = self.settle_query(&cursor.leases, Some(cursor.incarnation), progress, changes);
        let answer = self.row(doing, settle).await?;
        let verdict: &str = answer.try_get("verdict").map_err(self.could_not(doing))?;
        if verdict != "done" {
            cursor.reset();
            return Ok(None);
        }
        let mut changed: Vec<RowId> = answer.try_get("changed").map_err(self.could_not(doing))?;
        let progress_ids: Vec<i64> = answer.try_get("numbers").map_err(self.could_not(doing))?;
        for ((at, (mut window, _)), progress_id) in advanced.into_iter().zip(progress_ids) {
            window.progress_id = progress_id;
            cursor.windows[at] = window;
        }
        cursor.merge();
        changed.extend(changes.settled.iter().map(|settled| settled.id));
        for row in &changed {
            cursor.waiting.remove(row);
        }
        Ok(Some(changed))
    }

    /// Applies changes of rows that the connection's transaction has locked; no lease is compared.
    pub(crate) async fn apply_to_claimed(&self, connection: &mut PgConnection, changes: &Changes) -> Result<()> {
        let settle = self.settle_query(&[], None, Vec::new(), changes);
        settle.fetch_one(connection).await.map_err(self.could_not("settle claimed messages"))?;
        Ok(())
    }

    fn settle_query(
        &self,
        leases: &[ShardLease],
        incarnation: Option<Uuid>,
        progress: Vec<serde_json::Value>,
        changes: &Changes,
    ) -> Query<'static, sqlx::Postgres, PgArguments> {
        let arguments = SettleArguments {
            life: incarnation,
            places: serde_json::Value::Array(progress).to_string(),
            durable: changes.is_durable,
            keep: self.inner.keep_sent.is_some(),
            aside: changes.blocked.clone(),
            waited: changes.published_waiting.clone(),
            ..SettleArguments::default()
        };
        arguments
            .with_leases(leases)
            .with_retries(&changes.retries)
            .with_parks(&changes.parks)
            .bind(self.query(&self.statements().settle))
    }

    /// Returns the leases that no other relay has taken over.
    async fn still_held(&self, leases: Vec<ShardLease>) -> Result<Vec<ShardLease>> {
        let query = self
            .query_scalar(&self.statements().still_held)
            .bind(leases.iter().map(ShardLease::name).collect::<Vec<_>>())
            .bind(leases.iter().map(|lease| lease.holder.clone()).collect::<Vec<_>>())
            .bind(leases.iter().map(|lease| lease.epoch).collect::<Vec<_>>());
        let names: Vec<String> = self.values("compare leases", query).await?;
        Ok(leases.into_iter().filter(|lease| names.contains(&lease.name())).collect())
    }
}

fn known_location(cursor: &Cursor, row: RowId) -> Option<RowLocation> {
    if cursor.waiting.contains(&row) {
        return Some(RowLocation::Waiting);
    }
    cursor.windows.iter().position(|window| window.has_unsettled(row)).map(RowLocation::Window)
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.published_waiting.is_empty() && !self.may_block_keys()
    }

    /// Returns whether a key may be blocked afterwards that was not before.
    fn may_block_keys(&self) -> bool {
        !self.blocked.is_empty() || !self.retries.is_empty() || !self.parks.is_empty()
    }

    /// Moves rows of windows behind the messages that block their keys.
    pub(crate) fn blocked(rows: Vec<RowId>) -> Self {
        Self { blocked: rows, ..Self::default() }
    }

    /// Returns the windows as they are after the changes, by their index in the cursor, with the number of messages
    /// published from them.
    fn advanced_windows(&self, cursor: &Cursor) -> BTreeMap<usize, (SnapshotWindow, usize)> {
        let mut advanced: BTreeMap<usize, (SnapshotWindow, usize)> = BTreeMap::new();
        let settled = self.settled.iter().map(|settled| (settled.id, settled.window, settled.is_published));
        let blocked = self.blocked.iter().filter_map(|id| {
            let window = cursor.windows.iter().position(|window| window.has_unsettled(*id))?;
            Some((*id, window, false))
        });
        for (id, at, is_published) in settled.chain(blocked) {
            let (window, published) = advanced.entry(at).or_insert_with(|| (cursor.windows[at].clone(), 0));
            window.settle(id);
            *published += usize::from(is_published);
        }
        advanced
    }

    pub(crate) fn add(&mut self, id: RowId, location: RowLocation, decision: &Decision) {
        let waits = matches!(location, RowLocation::Waiting);
        if let RowLocation::Window(window) = location {
            self.settled.push(SettledRow { id, window, is_published: *decision == Decision::Published });
        }
        match decision {
            Decision::Published if waits => self.published_waiting.push(id),
            Decision::Published => {}
            Decision::Retry { after, error } => {
                self.is_durable = true;
                let seconds = (*after).min(MAX_RETRY_DELAY).as_secs_f64();
                self.retries.push(Retry { id, seconds, error: row::storable(error), waits });
            }
            Decision::Park { code, error, holds_key } => {
                self.is_durable = true;
                let (code, error) = (code.as_str().to_owned(), row::storable(error));
                self.parks.push(Park { id, code, error, holds_key: *holds_key, waits });
            }
        }
    }
}
