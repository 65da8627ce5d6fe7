//! Records in Redis as operators see them.

use landfall_core::idempotency::{RecordFilter, RecordRow, RecordState, RecordStats};
use landfall_core::{Result, Timestamp};

use super::{RedisRecords, Reply, corrupt, could_not, number, text};
use crate::idempotency::memory::matches;

const FIND: &str = "find idempotency records";

/// How many records one round trip reads.
const PAGE: usize = 200;

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
        let before = filter.before.map(|(time, _)| time);
        let (mut found, mut page) = (Vec::new(), Page::newest(before));
        while let Some(ids) = self.next(&self.index(), &mut page).await? {
            let rows = self.rows(&ids).await?;
            found.extend(rows.into_iter().filter(|row| matches(row, filter)));
            if found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    pub(super) async fn stats(&self) -> Result<RecordStats> {
        let (mut stats, mut page) = (RecordStats::default(), Page::newest(None));
        while let Some(ids) = self.next(&self.open(), &mut page).await? {
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
        Ok(stats)
    }

    /// Returns the ids of the next page; `None` after the last one.
    async fn next(&self, set: &str, page: &mut Page) -> Result<Option<Vec<String>>> {
        if page.is_last {
            return Ok(None);
        }
        let (mut connection, limit) = (self.connection.clone(), PAGE + page.at_score);
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(set).arg(&page.score).arg("-inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
        let members: Vec<(String, String)> = command.query_async(&mut connection).await.map_err(could_not(FIND))?;
        Ok(Some(page.advance(members, limit)))
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
        for id in gone {
            self.invoke::<u8>(FIND, &self.call(&self.scripts.forget, id.parse()?)).await?;
        }
        Ok(rows)
    }
}

/// A place in a sorted set, in descending order: the last member that was read. Members before it may come and go
/// without moving it, as they would move an offset.
struct Page {
    score: String,
    member: Option<String>,
    /// How many members with this score were read.
    at_score: usize,
    is_last: bool,
}

impl Page {
    fn newest(until: Option<Timestamp>) -> Self {
        let score = until.map_or_else(|| "+inf".to_owned(), |time| time.as_millis().to_string());
        Self { score, member: None, at_score: 0, is_last: false }
    }

    /// Moves behind `members`, which are those from the score on, and returns the ids that were not read before.
    fn advance(&mut self, members: Vec<(String, String)>, limit: usize) -> Vec<String> {
        self.is_last = members.len() < limit;
        let Some((member, score)) = members.last().cloned() else { return Vec::new() };
        let at_score = members.iter().filter(|(_, other)| *other == score).count();
        let is_new = |id: &str, at: &str| at != self.score || self.member.as_deref().is_none_or(|last| id < last);
        let ids = members.iter().filter(|(id, at)| is_new(id, at)).map(|(id, _)| id.clone()).collect();
        (self.score, self.member, self.at_score) = (score, Some(member), at_score);
        ids
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
