//! Settling: what the relay decided becomes new places in the progress table, and rows of the waiting table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use landfall_core::{Decision, Error, ErrorKind, Lease, Result, RowId, Settlement};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::cursor::{Cursor, Group, Held};
use crate::{Postgres, row};

/// The longest delay that is stored, so that no interval overflows.
const LONGEST_RETRY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Each time the cursor turned out to be behind. More often than this, and something else is wrong.
const TRIES: usize = 20;

/// Settlements sorted by what is to be done.
#[derive(Default)]
pub(crate) struct Plan {
    /// Rows of windows that are settled, with the number of the group, and whether they were published.
    settled: Vec<(RowId, usize, bool)>,
    aside: Vec<RowId>,
    /// Waiting messages that were published.
    waited: Vec<RowId>,
    retried: Vec<RowId>,
    retry_seconds: Vec<f64>,
    retry_errors: Vec<String>,
    retry_waits: Vec<bool>,
    parked: Vec<RowId>,
    park_codes: Vec<String>,
    park_errors: Vec<String>,
    park_holds: Vec<bool>,
    park_waits: Vec<bool>,
    durable: bool,
}

/// Where a row is.
#[derive(Clone, Copy)]
pub(crate) enum Whereabouts {
    /// Unsettled, in the window of the group with this number.
    Window(usize),
    /// Locked by a claim, in the outbox.
    Claimed,
    Waiting,
}

impl Postgres {
    pub(crate) async fn settle_all(
        &self,
        cursor: &mut Cursor,
        leases: &[Lease],
        settlements: &[Settlement],
    ) -> Result<Vec<RowId>> {
        let mut held = Held::of(leases);
        for _ in 0..TRIES {
            if held.is_empty() || settlements.is_empty() {
                return Ok(Vec::new());
            }
            self.follow(cursor, held.clone()).await?;
            let plan = self.plan(cursor, settlements).await?;
            if plan.is_empty() {
                return Ok(Vec::new());
            }
            if let Some(changed) = self.carry_out(cursor, &plan).await? {
                return Ok(changed);
            }
            held = self.still_held(held).await?;
        }
        Err(Error::new(ErrorKind::Unavailable, "the outbox was moved on by somebody else each time it was settled"))
    }

    async fn plan(&self, cursor: &Cursor, settlements: &[Settlement]) -> Result<Plan> {
        let mut places: Vec<Option<Whereabouts>> =
            settlements.iter().map(|settlement| whereabouts(cursor, settlement.row)).collect();
        // Not handed out by this cursor, or it was loaded again since.
        let unknown: Vec<RowId> =
            settlements.iter().zip(&places).filter(|(_, place)| place.is_none()).map(|(given, _)| given.row).collect();
        if !unknown.is_empty() {
            let found = self.look_up(cursor, &unknown).await?;
            for (settlement, place) in settlements.iter().zip(&mut places).filter(|(_, place)| place.is_none()) {
                *place = found.get(&settlement.row).copied();
            }
        }
        let mut plan = Plan { durable: !unknown.is_empty(), ..Plan::default() };
        // In order, as they were handed out, none is there twice.
        let mut planned = (!settlements.is_sorted_by(|one, next| one.row < next.row)).then(HashSet::new);
        for (Settlement { row, decision, .. }, place) in settlements.iter().zip(places) {
            let is_new = planned.as_mut().is_none_or(|planned| planned.insert(*row));
            if let Some(place) = place.filter(|_| is_new) {
                plan.durable |= cursor.fragile.contains(row);
                plan.add(*row, place, decision);
            }
        }
        Ok(plan)
    }

    /// Finds out about rows that the cursor does not know.
    async fn look_up(&self, cursor: &Cursor, rows: &[RowId]) -> Result<HashMap<RowId, Whereabouts>> {
        let mut found = HashMap::with_capacity(rows.len());
        let doing = "look for rows of the outbox";
        let mut session = self.session().await?;
        let answer = self
            .query(&self.statements().look_up)
            .bind(rows)
            .bind(cursor.shards())
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        for row in &answer {
            let id: RowId = row.try_get(0).map_err(self.could_not(doing))?;
            let shard: i16 = row.try_get(1).map_err(self.could_not(doing))?;
            let xid: Option<i64> = row.try_get(2).map_err(self.could_not(doing))?;
            let group = cursor.groups.iter().position(|group| group.shards.contains(&shard));
            match (xid, group) {
                (None, _) => drop(found.insert(id, Whereabouts::Waiting)),
                // A message that waits is in both tables; there it is settled, here it is not.
                (Some(xid), Some(at)) if !cursor.groups[at].has_settled(id, xid as u64) => {
                    found.entry(id).or_insert(Whereabouts::Window(at));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Runs the plan under the cursor's leases and answers with the rows it changed, or with nothing if the cursor was
    /// behind or a lease was lost: then nothing was changed, and the cursor has to be loaded again.
    pub(crate) async fn carry_out(&self, cursor: &mut Cursor, plan: &Plan) -> Result<Option<Vec<RowId>>> {
        if plan.is_trouble() {
            cursor.ahead.forget();
        }
        let mut after: BTreeMap<usize, (Group, usize)> = BTreeMap::new();
        let aside = plan
            .aside
            .iter()
            .filter_map(|row| Some((*row, cursor.groups.iter().position(|group| group.knows(*row))?, false)));
        for (row, at, published) in plan.settled.iter().copied().chain(aside) {
            let (group, count) = after.entry(at).or_insert_with(|| (cursor.groups[at].clone(), 0));
            group.settle(row);
            *count += usize::from(published);
        }
        let places: Vec<_> = after
            .values_mut()
            .map(|(group, published)| {
                group.advance();
                group.to_json(*published)
            })
            .collect();
        let doing = "settle the outbox";
        let mut session = self.session().await?;
        let statement = self.settle_statement(&cursor.held, Some(cursor.life), places, plan);
        let answer = statement.fetch_one(session.connection()).await.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        let verdict: &str = answer.try_get(0).map_err(self.could_not(doing))?;
        if verdict != "done" {
            cursor.forget();
            return Ok(None);
        }
        let mut changed: Vec<RowId> = answer.try_get(1).map_err(self.could_not(doing))?;
        let numbers: Vec<i64> = answer.try_get(2).map_err(self.could_not(doing))?;
        for ((at, (group, _)), n) in after.into_iter().zip(numbers) {
            cursor.groups[at] = Group { n, ..group };
        }
        cursor.merge();
        changed.extend(plan.settled.iter().map(|(row, ..)| row));
        for row in &changed {
            cursor.waiting.remove(row);
        }
        Ok(Some(changed))
    }

    /// The same for rows that are locked, so that no lease has to be compared.
    pub(crate) async fn carry_out_claimed(&self, connection: &mut PgConnection, plan: &Plan) -> Result<()> {
        let statement = self.settle_statement(&[], None, Vec::new(), plan);
        statement.fetch_one(connection).await.map_err(self.could_not("settle claimed messages"))?;
        Ok(())
    }

    fn settle_statement<'q>(
        &self,
        held: &[Held],
        life: Option<Uuid>,
        places: Vec<serde_json::Value>,
        plan: &'q Plan,
    ) -> Query<'q, sqlx::Postgres, PgArguments> {
        self.query(&self.statements().settle)
            .bind(held.iter().map(Held::lease_name).collect::<Vec<_>>())
            .bind(held.iter().map(|held| held.holder.clone()).collect::<Vec<_>>())
            .bind(held.iter().map(|held| held.epoch).collect::<Vec<_>>())
            .bind(life)
            .bind(serde_json::Value::Array(places).to_string())
            .bind(plan.durable)
            .bind(self.inner.keep_sent.is_some())
            .bind(&plan.aside)
            .bind(&plan.waited)
            .bind(&plan.retried)
            .bind(&plan.retry_seconds)
            .bind(&plan.retry_errors)
            .bind(&plan.retry_waits)
            .bind(&plan.parked)
            .bind(&plan.park_codes)
            .bind(&plan.park_errors)
            .bind(&plan.park_holds)
            .bind(&plan.park_waits)
    }

    /// Those of the leases that nobody has taken over.
    async fn still_held(&self, held: Vec<Held>) -> Result<Vec<Held>> {
        let doing = "compare leases";
        let mut session = self.session().await?;
        let names: Vec<String> = self
            .query_scalar(&self.statements().still_held)
            .bind(held.iter().map(Held::lease_name).collect::<Vec<_>>())
            .bind(held.iter().map(|held| held.holder.as_str()).collect::<Vec<_>>())
            .bind(held.iter().map(|held| held.epoch).collect::<Vec<_>>())
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(held.into_iter().filter(|held| names.contains(&held.lease_name())).collect())
    }
}

fn whereabouts(cursor: &Cursor, row: RowId) -> Option<Whereabouts> {
    if cursor.waiting.contains(&row) {
        return Some(Whereabouts::Waiting);
    }
    cursor.groups.iter().position(|group| group.knows(row)).map(Whereabouts::Window)
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.settled.is_empty()
            && self.aside.is_empty()
            && self.waited.is_empty()
            && self.retried.is_empty()
            && self.parked.is_empty()
    }

    /// Whether a key is blocked after it that was not before.
    fn is_trouble(&self) -> bool {
        !self.aside.is_empty() || !self.retried.is_empty() || !self.parked.is_empty()
    }

    /// Rows of windows that leave it to wait behind others.
    pub(crate) fn aside(rows: Vec<RowId>) -> Self {
        Self { aside: rows, ..Self::default() }
    }

    pub(crate) fn add(&mut self, id: RowId, whereabouts: Whereabouts, decision: &Decision) {
        let waits = matches!(whereabouts, Whereabouts::Waiting);
        if let Whereabouts::Window(at) = whereabouts {
            self.settled.push((id, at, *decision == Decision::Published));
        }
        match decision {
            Decision::Published if waits => self.waited.push(id),
            Decision::Published => {}
            Decision::Retry { after, error } => {
                self.durable = true;
                self.retried.push(id);
                self.retry_seconds.push((*after).min(LONGEST_RETRY).as_secs_f64());
                self.retry_errors.push(row::storable(error));
                self.retry_waits.push(waits);
            }
            Decision::Park { code, error, holds_key } => {
                self.durable = true;
                self.parked.push(id);
                self.park_codes.push(code.as_str().to_owned());
                self.park_errors.push(row::storable(error));
                self.park_holds.push(*holds_key);
                self.park_waits.push(waits);
            }
        }
    }
}
