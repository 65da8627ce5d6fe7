//! Half messages: prepared, decided and checked. The decisions about order and repeats are the toolkit's.
//!
//! Every step is one statement, and so one round trip and one commit. Prepares that arrive together share it, and so do
//! decisions: a coordinator serves many senders.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    AfterCheck, Decided, DueCheck, Fingerprint, HalfMessage, HalfMessageFilter, HalfMessageRow, HalfMessageStats,
    HalfMessages, HalfVerdict, Message, MessageId, Prepared, Result,
};
use landfall_sql_toolkit::{
    CHECK_BACK, EARLY, Group, HALF_ACKNOWLEDGE, HALF_CONTRADICTION, HALF_PARK, HalfMessageTable, StoredHalf,
    bind_message, check_back_json, decide, due_check, half_message_row, prepare, push_half_message_filter,
    storable_answer,
};
use sqlx::postgres::PgArguments;
use sqlx::query::{Query, QueryScalar};
use sqlx::{Postgres as Server, QueryBuilder, Row};

use crate::housekeeping::seconds;
use crate::statements::Sql;
use crate::timestamp::TimestampTz;
use crate::{Postgres, row};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Returns the days since 1970 that choose the partition: those of a UUIDv7, and 0 for any other id.
fn day(id: MessageId) -> i32 {
    let uuid = id.as_uuid();
    if uuid.get_version_num() != 7 {
        return 0;
    }
    let millis = uuid.as_u64_pair().0 >> 16;
    i32::try_from(millis / DAY_MS).unwrap_or_default()
}

#[async_trait]
impl HalfMessages for Postgres {
    async fn prepare(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<Prepared> {
        half.check(&self.inner.limits)?;
        prepare(self, half, fingerprint).await
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<Decided> {
        decide(self, id, verdict, &row::storable(actor)).await
    }

    async fn claim_due(&self, limit: usize, lease: Duration) -> Result<Vec<DueCheck>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = self.query(&self.statements().half_claim).bind(limit).bind(seconds(lease));
        let rows = self.rows("claim check-backs", query).await?;
        rows.iter().map(|row| due_check(row, row::half_message(row)?)).collect()
    }

    async fn record_check(&self, id: MessageId, checks: u32, answer: &str, after: AfterCheck) -> Result<()> {
        let (state, pause) = match after {
            AfterCheck::Again(pause) => ("prepared", Some(seconds(pause))),
            AfterCheck::Park => ("parked", None),
        };
        let query = self
            .about(&self.statements().half_record_check, id)
            .bind(i32::try_from(checks).unwrap_or(i32::MAX))
            .bind(storable_answer(answer))
            .bind(state)
            .bind(pause)
            .bind(CHECK_BACK)
            .bind(HALF_PARK);
        self.value("record a check-back", query).await.map(drop)
    }

    async fn acknowledge_contradiction(&self, id: MessageId, actor: &str) -> Result<bool> {
        let query =
            self.about(&self.statements().half_acknowledge, id).bind(row::storable(actor)).bind(HALF_ACKNOWLEDGE);
        Ok(self.value("acknowledge a contradiction", query).await? == 1)
    }

    async fn find_half_messages(&self, filter: &HalfMessageFilter, limit: usize) -> Result<Vec<HalfMessageRow>> {
        let mut query = QueryBuilder::new(self.statements().half_messages.as_str());
        push_half_message_filter(&mut query, filter, limit, |id| id.as_uuid(), TimestampTz);
        let rows = self.rows("find half messages", query.build().persistent(false)).await?;
        rows.iter().map(half_message_row).collect()
    }

    async fn half_message_stats(&self) -> Result<HalfMessageStats> {
        let row = self.row("count half messages", self.query(&self.statements().half_stats)).await?;
        let count = |column: usize| {
            row.try_get::<i64, _>(column).map(i64::unsigned_abs).map_err(self.could_not("count half messages"))
        };
        Ok(HalfMessageStats {
            prepared: count(0)?,
            parked: count(1)?,
            contradicted: count(2)?,
            early_commits: count(3)?,
            oldest_undecided_seconds: count(4)?,
        })
    }
}

impl HalfMessageTable for Postgres {
    async fn insert_half(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<bool> {
        let new =
            NewHalf { half: half.clone(), fingerprint: *fingerprint, check_back: check_back_json(&half.check_back)? };
        self.inner.half_inserts.call(&Inserts(self.clone()), new).await
    }

    async fn complete_early(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<bool> {
        let doing = "store a half message";
        let query = stored(self.query(&self.statements().half_complete), half, fingerprint)?;
        let completed = self.row(doing, query).await?;
        Ok(completed.try_get::<i64, _>(0).map_err(self.could_not(doing))? == 1)
    }

    async fn decide_undecided(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<bool> {
        let decision = Decision { id, verdict, actor: actor.to_owned() };
        self.inner.half_decisions.call(&Decisions(self.clone()), decision).await
    }

    async fn insert_early(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<bool> {
        let query = self
            .about(&self.statements().half_insert_early, id)
            .bind(verdict.state().as_str())
            .bind(actor)
            .bind(verdict.action())
            .bind(EARLY);
        Ok(self.value("store an early decision", query).await? == 1)
    }

    async fn contradict(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<()> {
        let query = self
            .about(&self.statements().half_contradict, id)
            .bind(actor)
            .bind(HALF_CONTRADICTION)
            .bind(verdict.action());
        self.value("record a contradiction", query).await.map(drop)
    }

    async fn stored_half(&self, id: MessageId) -> Result<Option<StoredHalf>> {
        let doing = "look up a half message";
        let query = self.query(&self.statements().half_stored).bind(id.as_uuid()).bind(day(id));
        let rows = self.rows(doing, query).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let columns = || Ok((row.try_get::<String, _>("state")?, row.try_get("fingerprint")?));
        let (state, fingerprint) = columns().map_err(self.could_not(doing))?;
        Ok(Some(StoredHalf { state: state.parse()?, fingerprint }))
    }
}

impl Postgres {
    /// A statement about one half message that returns how many rows it changed. The id and its day are bound.
    fn about<'q>(&self, statement: &Sql, id: MessageId) -> QueryScalar<'q, Server, i64, PgArguments> {
        self.query_scalar(statement).bind(id.as_uuid()).bind(day(id))
    }
}

/// Inserts half messages in groups. The outcome is whether the id was missing.
#[derive(Clone)]
pub(crate) struct Inserts(Postgres);

pub(crate) struct NewHalf {
    half: HalfMessage,
    fingerprint: Fingerprint,
    check_back: String,
}

impl Group for Inserts {
    type Call = NewHalf;
    type Outcome = bool;

    fn id(new: &NewHalf) -> MessageId {
        new.half.message.id
    }

    fn bytes(new: &NewHalf) -> usize {
        new.half.message.payload.len()
    }

    async fn run(&self, calls: &[NewHalf]) -> Result<Vec<bool>> {
        fn column<'a, T>(calls: &'a [NewHalf], value: impl Fn(&'a NewHalf) -> T) -> Vec<T> {
            calls.iter().map(value).collect()
        }
        fn message_column<'a, T>(calls: &'a [NewHalf], value: impl Fn(&'a Message) -> T) -> Vec<T> {
            calls.iter().map(|call| value(&call.half.message)).collect()
        }
        let query = self
            .0
            .query_scalar(&self.0.statements().half_insert)
            .bind(message_column(calls, |message| message.id.as_uuid()))
            .bind(message_column(calls, |message| message.topic.as_str()))
            .bind(message_column(calls, |message| message.key.as_ref().map(|key| key.as_str())))
            .bind(message_column(calls, |message| message.sequence))
            .bind(message_column(calls, |message| message.kind.as_str()))
            .bind(message_column(calls, |message| message.mode.as_str()))
            .bind(message_column(calls, |message| message.headers.to_json()))
            .bind(message_column(calls, |message| &message.payload[..]))
            .bind(message_column(calls, |message| TimestampTz(message.time)))
            .bind(column(calls, |call| &call.fingerprint[..]))
            .bind(column(calls, |call| call.half.business_type.as_str()))
            .bind(column(calls, |call| call.half.business_id.as_str()))
            .bind(column(calls, |call| call.check_back.as_str()))
            .bind(column(calls, |call| millis(call.half.check_after)))
            .bind(message_column(calls, |message| day(message.id)));
        let inserted = self.0.values("store half messages", query).await?;
        Ok(message_column(calls, |message| inserted.contains(&message.id.as_uuid())))
    }
}

/// Decides about half messages in groups. The outcome is whether the message was undecided.
#[derive(Clone)]
pub(crate) struct Decisions(Postgres);

pub(crate) struct Decision {
    id: MessageId,
    verdict: HalfVerdict,
    actor: String,
}

impl Group for Decisions {
    type Call = Decision;
    type Outcome = bool;

    fn id(decision: &Decision) -> MessageId {
        decision.id
    }

    fn bytes(_: &Decision) -> usize {
        0
    }

    async fn run(&self, calls: &[Decision]) -> Result<Vec<bool>> {
        fn column<'a, T>(calls: &'a [Decision], value: impl Fn(&'a Decision) -> T) -> Vec<T> {
            calls.iter().map(value).collect()
        }
        let query = self
            .0
            .query_scalar(&self.0.statements().half_decide)
            .bind(column(calls, |decision| decision.id.as_uuid()))
            .bind(column(calls, |decision| day(decision.id)))
            .bind(column(calls, |decision| decision.verdict.state().as_str()))
            .bind(column(calls, |decision| decision.actor.as_str()))
            .bind(column(calls, |decision| decision.verdict.action()));
        let decided = self.0.values("decide about half messages", query).await?;
        Ok(column(calls, |decision| decided.contains(&decision.id.as_uuid())))
    }
}

/// Binds the columns of an early decision's message.
fn stored<'q>(
    query: Query<'q, Server, PgArguments>,
    half: &'q HalfMessage,
    fingerprint: &'q Fingerprint,
) -> Result<Query<'q, Server, PgArguments>> {
    let HalfMessage { message, business_type, business_id, check_back, check_after } = half;
    Ok(bind_message(query, message, message.id.as_uuid(), TimestampTz(message.time))
        .bind(&fingerprint[..])
        .bind(business_type)
        .bind(business_id)
        .bind(check_back_json(check_back)?)
        .bind(millis(*check_after))
        .bind(day(message.id)))
}

/// Rounds up. No message waits for a thousand years, so longer times are cut to that.
fn millis(time: Duration) -> i64 {
    let longest = 1000 * 365 * i64::try_from(DAY_MS).unwrap_or(i64::MAX / 365_000);
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use landfall_core::Timestamp;

    use super::*;

    #[test]
    fn day_depends_on_the_id_alone() {
        let today = Timestamp::now().as_millis() / 86_400_000;
        assert!((0..=1).contains(&(today - i64::from(day(MessageId::new())))));
        assert_eq!(day(MessageId::from_business("order", "42")), 0);
        let id: MessageId = "019a9656-9c00-7000-8000-000000000000".parse().unwrap();
        assert_eq!(day(id), i32::try_from(0x019a_9656_9c00_i64 / 86_400_000).unwrap());
        assert_eq!(day("ffffffff-ffff-7fff-bfff-ffffffffffff".parse().unwrap()), 3_257_812);
    }
}
