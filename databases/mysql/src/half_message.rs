//! Half messages: prepared, decided and checked. The decisions about order and repeats are the toolkit's.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    AfterCheck, Database, Decided, DueCheck, ErrorKind, Fingerprint, HalfMessage, HalfMessageFilter, HalfMessageRow,
    HalfMessageStats, HalfMessages, HalfVerdict, MessageId, Prepared, Result,
};
use landfall_sql_toolkit::{
    CHECK_BACK, EARLY, HALF_ACKNOWLEDGE, HALF_CONTRADICTION, HALF_PARK, HalfMessageTable, StoredHalf, bind_message,
    check_back_json, decide, due_check, half_message_row, prepare, push_half_message_filter, storable_answer,
};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySqlConnection, QueryBuilder, Row};

use crate::connection::retry::retry_deadlocks;
use crate::outbox::settle::micros;
use crate::statements::Sql;
use crate::{MySql, row, timestamp};

#[async_trait]
impl HalfMessages for MySql {
    async fn prepare(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<Prepared> {
        half.check(&self.inner.limits)?;
        prepare(self, half, fingerprint).await
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<Decided> {
        decide(self, id, verdict, &row::actor(actor)).await
    }

    async fn claim_due(&self, limit: usize, lease: Duration) -> Result<Vec<DueCheck>> {
        retry_deadlocks(|| self.claim_checks(limit, lease)).await
    }

    async fn record_check(&self, id: MessageId, checks: u32, answer: &str, after: AfterCheck) -> Result<()> {
        let (state, pause) = match after {
            AfterCheck::Again(pause) => ("prepared", Some(micros(pause))),
            AfterCheck::Park => ("parked", None),
        };
        let answer = storable_answer(answer);
        let record = async || {
            let query = sqlx::query(self.statements().half_record_check.text())
                .bind(&answer)
                .bind(state)
                .bind(pause)
                .bind(id.as_uuid())
                .bind(i32::try_from(checks).unwrap_or(i32::MAX));
            let audit = (after == AfterCheck::Park).then_some((CHECK_BACK, HALF_PARK, answer.as_str()));
            self.change_half(id, query, "record a check-back", audit).await
        };
        retry_deadlocks(record).await.map(drop)
    }

    async fn acknowledge_contradiction(&self, id: MessageId, actor: &str) -> Result<bool> {
        let actor = row::actor(actor);
        let acknowledge = async || {
            let query = sqlx::query(self.statements().half_acknowledge.text()).bind(&actor).bind(id.as_uuid());
            let audit = Some((actor.as_str(), HALF_ACKNOWLEDGE, ""));
            self.change_half(id, query, "acknowledge a contradiction", audit).await
        };
        retry_deadlocks(acknowledge).await
    }

    async fn find_half_messages(&self, filter: &HalfMessageFilter, limit: usize) -> Result<Vec<HalfMessageRow>> {
        let mut query = QueryBuilder::new(self.statements().half_messages.as_str());
        push_half_message_filter(&mut query, filter, limit, |id| id.as_uuid(), timestamp::text);
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("find half messages"))?;
        rows.iter().map(half_message_row).collect()
    }

    async fn half_message_stats(&self) -> Result<HalfMessageStats> {
        let counts: (i64, i64, i64, i64, i64) = sqlx::query_as(self.statements().half_stats.text())
            .fetch_one(self.pool())
            .await
            .map_err(self.could_not("count half messages"))?;
        let (prepared, parked, contradicted, early_commits, oldest) = counts;
        Ok(HalfMessageStats {
            prepared: prepared.unsigned_abs(),
            parked: parked.unsigned_abs(),
            contradicted: contradicted.unsigned_abs(),
            early_commits: early_commits.unsigned_abs(),
            oldest_undecided_seconds: u64::try_from(oldest).unwrap_or_default(),
        })
    }
}

impl HalfMessageTable for MySql {
    async fn insert_half(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<bool> {
        let insert = async || {
            let query = sqlx::query(self.statements().half_insert.text());
            let query =
                bind_message(query, &half.message, half.message.id.as_uuid(), timestamp::text(half.message.time));
            let query = rest(query, half, fingerprint)?.bind(micros(half.check_after));
            query.execute(self.pool()).await.map(drop).map_err(self.could_not("store a half message"))
        };
        match retry_deadlocks(insert).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn complete_early(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<bool> {
        let HalfMessage { message, .. } = half;
        let complete = async || {
            let mut transaction = self.begin().await?;
            let query = sqlx::query(self.statements().half_complete.text());
            let query = bind_message(query, message, message.id.as_uuid(), timestamp::text(message.time));
            let completed = rest(query, half, fingerprint)?
                .bind(message.id.as_uuid())
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not("store a half message"))?;
            if completed.rows_affected() == 0 {
                return Ok(false);
            }
            self.enqueue_half(&mut transaction, message.id).await?;
            self.commit(transaction).await?;
            Ok(true)
        };
        retry_deadlocks(complete).await
    }

    async fn decide_undecided(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<bool> {
        let decide = async || {
            let mut transaction = self.begin().await?;
            let decided = sqlx::query(self.statements().half_decide.text())
                .bind(verdict.state().as_str())
                .bind(actor)
                .bind(id.as_uuid())
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not("decide about a half message"))?;
            if decided.rows_affected() == 0 {
                return Ok(false);
            }
            if verdict == HalfVerdict::Committed {
                self.enqueue_half(&mut transaction, id).await?;
            }
            self.record_half(&mut transaction, id, (actor, verdict.action(), "")).await?;
            self.commit(transaction).await?;
            Ok(true)
        };
        retry_deadlocks(decide).await
    }

    async fn insert_early(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<bool> {
        let insert = async || {
            let query = sqlx::query(self.statements().half_insert_early.text())
                .bind(id.as_uuid())
                .bind(verdict.state().as_str())
                .bind(actor);
            self.change_half(id, query, "store an early decision", Some((actor, verdict.action(), EARLY))).await
        };
        match retry_deadlocks(insert).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            outcome => outcome,
        }
    }

    async fn contradict(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<()> {
        let contradict = async || {
            let query = sqlx::query(self.statements().half_contradict.text()).bind(actor).bind(id.as_uuid());
            let audit = Some((actor, HALF_CONTRADICTION, verdict.action()));
            self.change_half(id, query, "record a contradiction", audit).await
        };
        retry_deadlocks(contradict).await.map(drop)
    }

    async fn stored_half(&self, id: MessageId) -> Result<Option<StoredHalf>> {
        let doing = "look up a half message";
        let mut transaction = self.begin().await?;
        let found = sqlx::query(self.statements().half_stored.text())
            .bind(id.as_uuid())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        // The caller is told what was read.
        self.flush(transaction).await?;
        let Some(row) = found else { return Ok(None) };
        let columns = || Ok((row.try_get::<String, _>("state")?, row.try_get("fingerprint")?));
        let (state, fingerprint) = columns().map_err(self.could_not(doing))?;
        Ok(Some(StoredHalf { state: state.parse()?, fingerprint }))
    }
}

/// Actor, action and detail of an audit row.
type Audit<'a> = (&'a str, &'a str, &'a str);

impl MySql {
    async fn claim_checks(&self, limit: usize, lease: Duration) -> Result<Vec<DueCheck>> {
        let doing = "claim check-backs";
        let mut transaction = self.begin().await?;
        let rows = sqlx::query(self.statements().half_due.text())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        let due = rows.iter().map(|row| due_check(row, row::half_message(row)?)).collect::<Result<Vec<_>>>()?;
        if due.is_empty() {
            return Ok(due);
        }
        let mut claim = QueryBuilder::new(self.statements().half_claim.as_str());
        claim.push_bind(micros(lease)).push(" MICROSECOND WHERE id IN (");
        let mut ids = claim.separated(", ");
        for check in &due {
            ids.push_bind(check.half.message.id.as_uuid());
        }
        claim.push(")");
        claim.build().persistent(false).execute(&mut *transaction).await.map_err(self.could_not(doing))?;
        self.commit(transaction).await?;
        Ok(due)
    }

    /// Runs a change of one row in its own transaction, with an audit row if it changed something. Returns whether it
    /// did.
    async fn change_half(
        &self,
        id: MessageId,
        change: Query<'_, sqlx::MySql, MySqlArguments>,
        doing: &'static str,
        audit: Option<Audit<'_>>,
    ) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let changed = change.execute(&mut *transaction).await.map_err(self.could_not(doing))?.rows_affected() > 0;
        if let (true, Some(audit)) = (changed, audit) {
            self.record_half(&mut transaction, id, audit).await?;
        }
        self.commit_seen(transaction).await?;
        Ok(changed)
    }

    /// Copies a committed message into the outbox. Does nothing for any other.
    async fn enqueue_half(&self, connection: &mut MySqlConnection, id: MessageId) -> Result<()> {
        let query = sqlx::query(self.statements().half_enqueue.text()).bind(id.as_uuid());
        query.execute(connection).await.map(drop).map_err(self.could_not("enqueue a committed message"))
    }

    async fn record_half(&self, connection: &mut MySqlConnection, id: MessageId, audit: Audit<'_>) -> Result<()> {
        let (actor, action, detail) = audit;
        sqlx::query(self.statements().half_audit.text())
            .bind(actor)
            .bind(action)
            .bind(id.as_uuid())
            .bind(detail)
            .execute(connection)
            .await
            .map(drop)
            .map_err(self.could_not("write the audit trail"))
    }

    /// Removes barrier rows, and records from when on a missing row has a meaning.
    pub(crate) async fn remove_barriers(&self, age: Duration, at_most: u64) -> Result<u64> {
        let doing = "remove barrier rows";
        let run = async |connection: &mut MySqlConnection, statement: &Sql, at_most: Option<i64>| {
            let query = sqlx::query(statement.text()).bind(micros(age));
            let query = at_most.into_iter().fold(query, |query, at_most| query.bind(at_most));
            query.execute(connection).await.map(|done| done.rows_affected()).map_err(self.could_not(doing))
        };
        let remove = async || {
            let mut transaction = self.begin().await?;
            let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
            let removed = run(&mut transaction, &self.statements().remove_barriers, Some(at_most)).await?;
            if removed > 0 {
                run(&mut transaction, &self.statements().barriers_removed, None).await?;
            }
            self.commit(transaction).await?;
            Ok(removed)
        };
        retry_deadlocks(remove).await
    }
}

/// Binds the columns after those of the message.
fn rest<'q>(
    query: Query<'q, sqlx::MySql, MySqlArguments>,
    half: &'q HalfMessage,
    fingerprint: &'q Fingerprint,
) -> Result<Query<'q, sqlx::MySql, MySqlArguments>> {
    let check_after = i64::try_from(half.check_after.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    Ok(query
        .bind(&fingerprint[..])
        .bind(&half.business_type)
        .bind(&half.business_id)
        .bind(check_back_json(&half.check_back)?)
        .bind(check_after))
}
