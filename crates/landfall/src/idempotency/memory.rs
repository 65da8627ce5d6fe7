//! Records in memory: for tests, and for one process whose records may be lost with it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::idempotency::{
    Body, Claim, Decision, Epoch, Fingerprint, IdempotencyRecords, Identity, IdentityKind, OneTimeTokens, Outcome,
    RecordFilter, RecordId, RecordRow, RecordState, RecordStats, Resolution, Settled, Snapshot, StoredRecord, Terms,
    decide, settled,
};
use landfall_core::{Error, ErrorKind, Result, Timestamp};
use tokio::time::Instant;

/// Keeps records in this process. They are lost when it ends, so work may then be done again. Clones share the records.
#[derive(Clone)]
pub struct MemoryRecords {
    table: Arc<Mutex<Table>>,
    options: MemoryOptions,
}

/// How long [`MemoryRecords`], and records in Redis, are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOptions {
    /// How long an answer is replayed, from the beginning of its work.
    pub keep_answers: Duration,
    /// How long a key is known, from its last attempt. Longer than `keep_answers`.
    pub keep_records: Duration,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { keep_answers: Duration::from_secs(24 * 3600), keep_records: Duration::from_secs(7 * 24 * 3600) }
    }
}

#[derive(Default)]
struct Table {
    records: HashMap<RecordId, Record>,
    /// Attempts in the order of their beginning, for retention. An entry with another epoch is outdated.
    begun: VecDeque<(RecordId, Epoch)>,
}

struct Record {
    identity: Identity,
    state: RecordState,
    fingerprint: Option<Fingerprint>,
    epoch: Epoch,
    parks: bool,
    claimed: Instant,
    claimed_at: Timestamp,
    updated_at: Timestamp,
    expires: Instant,
    ceiling: Instant,
    answer: Option<Snapshot>,
    reason: Option<String>,
}

/// How many outdated attempts a claim looks at, so that retention costs no single caller much.
const SWEEP: usize = 4;

impl MemoryRecords {
    pub fn new(options: MemoryOptions) -> Self {
        Self { table: Arc::default(), options }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the answers of work that began at least `age` ago, and returns how many.
    pub fn remove_answers(&self, age: Duration) -> u64 {
        let now = Instant::now();
        self.lock().records.values_mut().filter_map(|record| record.expire_answer(now, age)).count() as u64
    }

    /// Removes the records whose last attempt began at least `age` ago, but none that is in flight or uncertain, and
    /// returns how many.
    pub fn remove_records(&self, age: Duration) -> u64 {
        let (mut table, now) = (self.lock(), Instant::now());
        let before = table.records.len();
        table.records.retain(|_, record| !record.is_removable(now, age));
        (before - table.records.len()) as u64
    }
}

impl Default for MemoryRecords {
    fn default() -> Self {
        Self::new(MemoryOptions::default())
    }
}

impl std::fmt::Debug for MemoryRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRecords").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Adds a time of any length.
fn after(now: Instant, time: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now + time.min(LONGEST)
}

impl Table {
    /// Returns the record, without an expired answer. Removes it if it has expired as a whole.
    fn get(&mut self, id: RecordId, now: Instant, options: &MemoryOptions) -> Option<&mut Record> {
        if self.records.get(&id).is_some_and(|record| record.is_removable(now, options.keep_records)) {
            self.records.remove(&id);
        }
        let record = self.records.get_mut(&id)?;
        record.expire_answer(now, options.keep_answers);
        Some(record)
    }

    fn sweep(&mut self, now: Instant, options: &MemoryOptions) {
        for _ in 0..SWEEP {
            let Some((id, epoch)) = self.begun.front().copied() else { return };
            match self.records.get(&id).filter(|record| record.epoch == epoch) {
                Some(record) if now < after(record.claimed, options.keep_records) => return,
                Some(record) if record.is_removable(now, options.keep_records) => {
                    self.records.remove(&id);
                }
                // Outdated, or kept for a person: found by its key from now on.
                _ => {}
            }
            self.begun.pop_front();
        }
    }

    fn open(&mut self, id: RecordId, epoch: Epoch) -> Option<&mut Record> {
        self.records.get_mut(&id).filter(|record| {
            record.epoch == epoch && matches!(record.state, RecordState::InFlight | RecordState::Uncertain)
        })
    }
}

impl Record {
    fn new(identity: &Identity, state: RecordState) -> Self {
        let (now, time) = (Instant::now(), Timestamp::now());
        Self {
            identity: identity.clone(),
            state,
            fingerprint: None,
            epoch: time.as_millis(),
            parks: false,
            claimed: now,
            claimed_at: time,
            updated_at: time,
            expires: now,
            ceiling: now,
            answer: None,
            reason: None,
        }
    }

    fn begin(&mut self, fingerprint: &Fingerprint, terms: &Terms) {
        let (now, time) = (Instant::now(), Timestamp::now());
        (self.state, self.fingerprint, self.parks) =
            (RecordState::InFlight, Some(*fingerprint), terms.on_unknown.is_uncertain());
        (self.claimed, self.claimed_at, self.updated_at) = (now, time, time);
        (self.expires, self.ceiling) = (after(now, terms.lease), after(now, terms.ceiling));
        (self.answer, self.reason) = (None, None);
    }

    /// The state as people see it.
    fn state(&self, now: Instant) -> RecordState {
        let is_left = self.state == RecordState::InFlight && self.parks && self.expires <= now;
        if is_left { RecordState::Uncertain } else { self.state }
    }

    fn is_removable(&self, now: Instant, age: Duration) -> bool {
        now >= after(self.claimed, age)
            && match self.state {
                RecordState::Completed | RecordState::Released => true,
                RecordState::Issued => self.expires <= now,
                RecordState::InFlight => !self.parks && self.expires <= now,
                RecordState::Uncertain => false,
            }
    }

    fn expire_answer(&mut self, now: Instant, age: Duration) -> Option<()> {
        let is_old = now >= after(self.claimed, age);
        let answer = self.answer.as_mut().filter(|answer| is_old && answer.body.kept().is_some())?;
        (answer.headers, answer.body) = (Vec::new(), Body::Expired);
        Some(())
    }

    fn stored(&self, now: Instant) -> StoredRecord {
        StoredRecord {
            state: self.state,
            epoch: self.epoch,
            fingerprint: self.fingerprint,
            parks: self.parks,
            remaining: self.expires.saturating_duration_since(now),
            answer: self.answer.clone(),
        }
    }

    fn row(&self, now: Instant) -> RecordRow {
        let state = self.state(now);
        let has_expiry = matches!(state, RecordState::Issued | RecordState::InFlight);
        let left = self.expires.saturating_duration_since(now).as_millis();
        let expires_at = Timestamp::now().as_millis().saturating_add(i64::try_from(left).unwrap_or(i64::MAX));
        RecordRow {
            id: self.identity.id(),
            kind: self.identity.kind(),
            scope: self.identity.scope().clone(),
            business_type: self.identity.business_type().to_owned(),
            key: self.identity.key().to_owned(),
            state,
            epoch: self.epoch,
            on_unknown: self.parks.into(),
            claimed_at: self.claimed_at,
            updated_at: self.updated_at,
            expires_at: has_expiry.then(|| Timestamp::from_millis(expires_at)),
            status: self.answer.as_ref().map(|answer| answer.status),
            body: self.answer.as_ref().map(|answer| answer.body.as_str().to_owned()),
            body_bytes: self.answer.as_ref().and_then(|answer| answer.body.kept()).map(|body| body.len() as u64),
            reason: self.reason.clone(),
        }
    }
}

#[async_trait]
impl IdempotencyRecords for MemoryRecords {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        let (id, now) = (identity.id(), Instant::now());
        let mut table = self.lock();
        table.sweep(now, &self.options);
        let epoch = match table.get(id, now, &self.options) {
            None if identity.kind() == IdentityKind::Token => return Ok(Claim::NotIssued),
            None => {
                let mut record = Record::new(identity, RecordState::InFlight);
                record.begin(fingerprint, terms);
                let epoch = record.epoch;
                table.records.insert(id, record);
                epoch
            }
            Some(record) => match decide(&record.stored(now), fingerprint) {
                Decision::Answer(claim) => return Ok(claim),
                Decision::TakeOver => {
                    record.epoch += 1;
                    record.begin(fingerprint, terms);
                    record.epoch
                }
            },
        };
        table.begun.push_back((id, epoch));
        Ok(Claim::Claimed { epoch })
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        let (mut table, now) = (self.lock(), Instant::now());
        let Some(record) = table.open(identity.id(), epoch) else { return Ok(None) };
        if record.state != RecordState::InFlight || record.ceiling <= now {
            return Ok(None);
        }
        record.expires = after(now, lease).min(record.ceiling);
        Ok(Some(record.expires - now))
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let (mut table, now, id) = (self.lock(), Instant::now(), identity.id());
        let Some(record) = table.open(id, epoch) else {
            return Ok(settled(table.get(id, now, &self.options).map(|record| record.stored(now)), epoch, outcome));
        };
        record.updated_at = Timestamp::now();
        match outcome {
            Outcome::Done(answer) => {
                (record.state, record.answer, record.reason) = (RecordState::Completed, Some(answer.clone()), None);
            }
            Outcome::NothingDone => (record.state, record.reason) = (RecordState::Released, None),
            Outcome::Unknown(reason) => {
                record.state = if record.parks { RecordState::Uncertain } else { RecordState::InFlight };
                (record.expires, record.reason) = (now, Some(reason.clone()));
            }
        }
        Ok(Settled::Recorded)
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        let (mut table, now) = (self.lock(), Instant::now());
        let uncertain = table.records.get_mut(&id).filter(|record| record.state(now) == RecordState::Uncertain);
        let Some(record) = uncertain else { return Ok(false) };
        (record.state, record.answer) = match resolution {
            Resolution::Done(answer) => (RecordState::Completed, Some(answer.clone())),
            Resolution::Rerun => (RecordState::Released, None),
        };
        record.epoch += 1;
        (record.updated_at, record.reason) = (Timestamp::now(), Some(format!("resolved by {actor}")));
        let begun = (id, record.epoch);
        table.begun.push_back(begun);
        Ok(true)
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        let now = Instant::now();
        let mut rows: Vec<RecordRow> = self.lock().records.values().map(|record| record.row(now)).collect();
        rows.retain(|row| matches(row, filter));
        rows.sort_by_key(|row| std::cmp::Reverse((row.claimed_at, row.id)));
        rows.truncate(limit);
        Ok(rows)
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        let (table, now, time) = (self.lock(), Instant::now(), Timestamp::now());
        let mut stats = RecordStats::default();
        for record in table.records.values().filter(|record| record.identity.kind() != IdentityKind::Window) {
            match record.state(now) {
                RecordState::InFlight if record.expires > now => stats.in_flight += 1,
                RecordState::Uncertain => {
                    let age = record.claimed_at.elapsed_since(time).as_secs();
                    (stats.uncertain, stats.oldest_uncertain_seconds) =
                        (stats.uncertain + 1, stats.oldest_uncertain_seconds.max(age));
                }
                _ => {}
            }
        }
        Ok(stats)
    }
}

#[async_trait]
impl OneTimeTokens for MemoryRecords {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        let mut table = self.lock();
        let mut record = Record::new(identity, RecordState::Issued);
        record.expires = after(record.claimed, ttl);
        let (id, epoch) = (identity.id(), record.epoch);
        if table.records.contains_key(&id) {
            return Err(Error::new(ErrorKind::Conflict, "this token was issued before; generate a new one"));
        }
        let expires_at = record.row(record.claimed).expires_at.unwrap_or(record.claimed_at);
        table.records.insert(id, record);
        table.begun.push_back((id, epoch));
        Ok(expires_at)
    }
}

pub(super) fn matches(row: &RecordRow, filter: &RecordFilter) -> bool {
    let RecordFilter { id, kind, state, scope, business_type, key, before } = filter;
    id.is_none_or(|id| id == row.id)
        && kind.is_none_or(|kind| kind == row.kind)
        && state.is_none_or(|state| state == row.state)
        && scope.as_ref().is_none_or(|scope| *scope == row.scope)
        && business_type.as_ref().is_none_or(|business_type| *business_type == row.business_type)
        && key.as_ref().is_none_or(|key| *key == row.key)
        && before.is_none_or(|before| (row.claimed_at, row.id) < before)
}
