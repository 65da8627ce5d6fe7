//! Records in Redis as operators see them.

use landfall_core::idempotency::{RecordFilter, RecordRow, RecordState, RecordStats};
use landfall_core::{Result, Timestamp};

use super::{RedisRecords, Reply, corrupt, could_not, number, text};
use crate::idempotency::memory::matches;

const FIND: &str = "find idempotency records";

/// How many records one round trip reads.
const PAGE: isize = 200;

const FIELDS: [&str; 12] = [
    "kind",
    "scope",
    "business_type",
    "key",
    "state",
    "epoch",
    "parks",
    "claimed",
    "updated",
    "expires",
    "status",
    "body_state",
];

impl RedisRecords {
    pub(super) async fn find(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        if let Some(id) = filter.id {
            let found = self.rows(&[id.to_string()]).await?;
            return Ok(found.into_iter().filter(|row| matches(row, filter)).take(limit).collect());
        }
        let from = filter.before.map_or_else(|| "+inf".to_owned(), |(time, _)| time.as_millis().to_string());
        let (mut found, mut offset) = (Vec::new(), 0);
        loop {
            let ids = self.page(&self.index(), &from, offset).await?;
            offset += PAGE;
            let rows = self.rows(&ids).await?;
            found.extend(rows.into_iter().filter(|row| matches(row, filter)));
            if found.len() >= limit || ids.is_empty() {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    pub(super) async fn stats(&self) -> Result<RecordStats> {
        let (mut stats, mut offset) = (RecordStats::default(), 0);
        loop {
            let ids = self.page(&self.open(), "+inf", offset).await?;
            if ids.is_empty() {
                return Ok(stats);
            }
            offset += PAGE;
            let now = self.now().await?;
            for row in self.rows(&ids).await? {
                match row.state {
                    RecordState::InFlight if row.expires_at.is_some_and(|expires_at| expires_at > now) => {
                        stats.in_flight += 1;
                    }
                    RecordState::Uncertain => {
                        let age = row.claimed_at.elapsed_since(now).as_secs();
                        stats.uncertain += 1;
                        stats.oldest_uncertain_seconds = stats.oldest_uncertain_seconds.max(age);
                    }
                    _ => {}
                }
            }
        }
    }

    async fn page(&self, set: &str, from: &str, offset: isize) -> Result<Vec<String>> {
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(set).arg(from).arg("-inf").arg("LIMIT").arg(offset).arg(PAGE);
        command.query_async(&mut connection).await.map_err(could_not(FIND))
    }

    async fn now(&self) -> Result<Timestamp> {
        let mut connection = self.connection.clone();
        let (seconds, micros): (i64, i64) =
            redis::cmd("TIME").query_async(&mut connection).await.map_err(could_not(FIND))?;
        Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
    }

    /// Reads records in the order of their ids. Those that have expired are missing, and leave the index.
    async fn rows(&self, ids: &[String]) -> Result<Vec<RecordRow>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for id in ids {
            pipeline.cmd("HMGET").arg(self.record(id)).arg(&FIELDS).arg("reason");
            pipeline.cmd("HSTRLEN").arg(self.record(id)).arg("body");
        }
        let now = self.now().await?;
        let mut connection = self.connection.clone();
        let replies: Vec<redis::Value> = pipeline.query_async(&mut connection).await.map_err(could_not(FIND))?;
        let (mut rows, mut gone) = (Vec::with_capacity(ids.len()), Vec::new());
        for (id, pair) in ids.iter().zip(replies.chunks(2)) {
            let [fields, length] = pair else { return Err(corrupt()) };
            let fields: Reply = redis::from_redis_value(fields.clone()).map_err(|_| corrupt())?;
            let length: u64 = redis::from_redis_value(length.clone()).map_err(|_| corrupt())?;
            match row(id, &fields, length, now)? {
                Some(row) => rows.push(row),
                None => gone.push(id),
            }
        }
        if !gone.is_empty() {
            let mut pipeline = redis::pipe();
            pipeline.zrem(self.index(), &gone).ignore().zrem(self.open(), &gone).ignore();
            pipeline.query_async::<()>(&mut connection).await.map_err(could_not(FIND))?;
        }
        Ok(rows)
    }
}

/// Decodes the [`FIELDS`] and the reason. `None` for a record that is gone.
fn row(id: &str, fields: &Reply, body_bytes: u64, now: Timestamp) -> Result<Option<RecordRow>> {
    let Some(kind) = text(fields, 0)? else { return Ok(None) };
    let word = |place: usize| text(fields, place).map(|text| text.unwrap_or_default().to_owned());
    let time = |place: usize| number(fields, place).map(Timestamp::from_millis);
    let (stored, parks, expires_at) = (word(4)?.parse::<RecordState>()?, word(6)? == "1", time(9)?);
    let is_left = stored == RecordState::InFlight && parks && expires_at <= now;
    let state = if is_left { RecordState::Uncertain } else { stored };
    let has_expiry = matches!(state, RecordState::Issued | RecordState::InFlight);
    let body = text(fields, 11)?.map(str::to_owned);
    Ok(Some(RecordRow {
        id: id.parse()?,
        kind: kind.parse()?,
        scope: word(1)?.parse()?,
        business_type: word(2)?,
        key: word(3)?,
        state,
        epoch: number(fields, 5)?,
        on_unknown: parks.into(),
        claimed_at: time(7)?,
        updated_at: time(8)?,
        expires_at: has_expiry.then_some(expires_at),
        status: text(fields, 10)?.and_then(|status| status.parse().ok()),
        body_bytes: (body.as_deref() == Some("kept")).then_some(body_bytes),
        body,
        reason: text(fields, 12)?.map(str::to_owned),
    }))
}
