//! Dead letters as operators find and redrive them.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    AtLeast, Database, DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterId, DeadLetterStats, DeadLetters,
    Discarded, OpenLetters, OutboxWriter, Redriven, Result,
};
use landfall_sql_toolkit::{
    Value, bind_values, check_edited_payload, count_letters, dead_letter_groups, dead_letter_stats, edit_refused,
    letters, open_letters, prepare_letters, set_ignored, top_error_codes,
};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::portable::DIALECT;
use crate::statements::Sql;
use crate::{Postgres, row};

#[async_trait]
impl DeadLetters for Postgres {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        self.selected(&self.statements().find, filter, limit).await
    }

    async fn list_letters(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        self.selected(&self.statements().list_letters, filter, limit).await
    }

    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven> {
        prepare_letters(self, filter).await?;
        let mut transaction = self.begin().await?;
        let parked = self.lock_parked(&mut transaction, filter).await?;
        let skipped = self.not_parked(&mut transaction, filter).await?;
        let redriven = self.redrive_parked(&mut transaction, &parked, actor, "").await?;
        let has_relay = parked.iter().any(|(_, is_relay)| *is_relay);
        self.commit(transaction).await?;
        if has_relay {
            self.wake();
        }
        Ok(Redriven { redriven, skipped })
    }

    async fn discard(&self, filter: &DeadLetterFilter, reason: &str, actor: &str) -> Result<Discarded> {
        let (doing, sql) = ("discard dead letters", self.statements());
        prepare_letters(self, filter).await?;
        let mut transaction = self.begin().await?;
        let parked = self.lock_parked(&mut transaction, filter).await?;
        let skipped = self.not_parked(&mut transaction, filter).await?;
        let discarded: Vec<DeadLetterId> = parked.iter().map(|(id, _)| *id).collect();
        let relay: Vec<DeadLetterId> = parked.iter().filter(|(_, is_relay)| *is_relay).map(|(id, _)| *id).collect();
        if !relay.is_empty() {
            self.query(&sql.lock_shards).execute(&mut *transaction).await.map_err(self.could_not(doing))?;
        }
        let query = self.query(&sql.discard).bind(&discarded).bind(row::storable(actor)).bind(row::storable(reason));
        query.execute(&mut *transaction).await.map_err(self.could_not(doing))?;
        let keys: Vec<(String, String, String)> = self
            .query_as(&sql.keys_of)
            .bind(&discarded)
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        for (group, topic, key) in keys.iter().filter(|(group, ..)| !group.is_empty()) {
            self.hand_over_key(&mut transaction, group, topic, Some(key)).await?;
        }
        if !relay.is_empty() {
            for statement in [&sql.lock_relay_keys, &sql.release_relay_keys, &sql.promote_successors] {
                self.run(&mut transaction, statement, &relay, None).await?;
            }
        }
        self.commit(transaction).await?;
        if !relay.is_empty() {
            self.wake();
        }
        Ok(Discarded { discarded, skipped })
    }

    async fn edit(&self, id: DeadLetterId, payload: &[u8], actor: &str) -> Result<()> {
        let doing = "edit a dead letter";
        check_edited_payload(&self.inner.limits, payload)?;
        let mut transaction = self.begin().await?;
        let edited = self
            .query(&self.statements().edit)
            .bind(id)
            .bind(payload)
            .bind(row::storable(actor))
            .bind(format!("the payload now has {} bytes", payload.len()))
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not(doing))?;
        self.commit(transaction).await?;
        if edited.rows_affected() == 0 {
            let filter = DeadLetterFilter { id: Some(id), ..DeadLetterFilter::default() };
            return Err(edit_refused(id, self.find(&filter, 1).await?.first()));
        }
        Ok(())
    }

    async fn ignore(&self, id: DeadLetterId, reason: &str, actor: &str) -> Result<()> {
        set_ignored(self, id, true, reason, actor).await
    }

    async fn release_ignored(&self, id: DeadLetterId, reason: &str, actor: &str) -> Result<()> {
        set_ignored(self, id, false, reason, actor).await
    }

    async fn count_letters(&self, filter: &DeadLetterFilter, most: u64) -> Result<AtLeast> {
        count_letters(self, filter, most).await
    }

    async fn dead_letter_groups(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetterGroup>> {
        dead_letter_groups(self, filter, limit).await
    }

    async fn top_error_codes(&self, limit: usize) -> Result<Vec<(String, u64)>> {
        top_error_codes(self, limit).await
    }

    async fn open_letters(&self) -> Result<Vec<OpenLetters>> {
        let doing = "count dead letters";
        let mut session = self.session().await?;
        let rows = self.query_as(&self.statements().open_letters).fetch_all(session.connection()).await;
        let rows = rows.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        open_letters(rows)
    }

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats> {
        let doing = "count dead letters";
        let mut session = self.session().await?;
        let counts = self.query_as(&self.statements().dead_letter_stats).fetch_all(session.connection()).await;
        let counts = counts.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        dead_letter_stats(counts)
    }

    async fn parked_age_p95(&self) -> Result<Duration> {
        let ages: Vec<i64> =
            self.values("read the age of dead letters", self.query_scalar(&self.statements().parked_age_p95)).await?;
        let age = ages.first().copied();
        Ok(Duration::from_micros(age.unwrap_or_default().unsigned_abs()))
    }
}

impl Postgres {
    async fn selected(&self, select: &Sql, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        prepare_letters(self, filter).await?;
        let limit = (limit as u64).into();
        let (text, values) = self.matching_letters(select, filter, " ORDER BY id LIMIT ?", vec![limit]);
        let query = bind_values(sqlx::query(text).persistent(self.may_prepare()), values);
        let rows = self.rows("find dead letters", query).await?;
        rows.iter().map(row::dead_letter).collect()
    }

    /// Redrives locked letters, each with whether it is the relay's, and returns their ids.
    pub(crate) async fn redrive_parked(
        &self,
        connection: &mut PgConnection,
        parked: &[(DeadLetterId, bool)],
        actor: &str,
        detail: &str,
    ) -> Result<Vec<DeadLetterId>> {
        let ids = |of_relay: bool| -> Vec<DeadLetterId> {
            parked.iter().filter(|(_, is_relay)| *is_relay == of_relay).map(|(id, _)| *id).collect()
        };
        let (relay, consumer, actor) = (ids(true), ids(false), row::storable(actor));
        let audited = Some((actor.as_str(), detail));
        if !consumer.is_empty() {
            self.run(connection, &self.statements().redrive_consumer, &consumer, audited).await?;
        }
        if !relay.is_empty() {
            self.run(connection, &self.statements().redrive_relay, &relay, audited).await?;
            // The keys are locked before they are released, so that a dead letter that the relay parks meanwhile is
            // seen.
            self.run(connection, &self.statements().lock_relay_keys, &relay, None).await?;
            self.run(connection, &self.statements().release_relay_keys, &relay, None).await?;
        }
        Ok(parked.iter().map(|(id, _)| *id).collect())
    }

    /// Locks the parked dead letters that match, oldest first. Returns each with whether it is the relay's.
    async fn lock_parked(
        &self,
        connection: &mut PgConnection,
        filter: &DeadLetterFilter,
    ) -> Result<Vec<(DeadLetterId, bool)>> {
        let tail = " AND status = 'parked' AND NOT ignored ORDER BY id FOR UPDATE";
        let (text, values) = self.matching_letters(&self.statements().find_ids, filter, tail, Vec::new());
        let doing = "lock dead letters";
        let query = bind_values(sqlx::query(text).persistent(self.may_prepare()), values);
        let rows = query.fetch_all(connection).await.map_err(self.could_not(doing))?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<sqlx::Result<_>>()
            .map_err(self.could_not(doing))
    }

    async fn not_parked(&self, connection: &mut PgConnection, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterId>> {
        let tail = " AND (status <> 'parked' OR ignored) ORDER BY id";
        let (text, values) = self.matching_letters(&self.statements().find_ids, filter, tail, Vec::new());
        let doing = "find dead letters";
        let query = bind_values(sqlx::query(text).persistent(self.may_prepare()), values);
        let rows = query.fetch_all(connection).await.map_err(self.could_not(doing))?;
        rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(self.could_not(doing))
    }

    /// Runs a statement of a redrive on some dead letters, with the actor and the detail for the audit trail if it
    /// writes that.
    async fn run(
        &self,
        connection: &mut PgConnection,
        statement: &Sql,
        letters: &[DeadLetterId],
        audited: Option<(&str, &str)>,
    ) -> Result<()> {
        let mut query = self.query(statement).bind(letters);
        if let Some((actor, detail)) = audited {
            query = query.bind(actor).bind(detail);
        }
        query.execute(connection).await.map_err(self.could_not("redrive dead letters"))?;
        Ok(())
    }
}

impl Postgres {
    /// Returns the statement with a condition for every field of the filter that is set, and its values. `tail` follows
    /// the conditions, with the values `more`.
    fn matching_letters(
        &self,
        select: &Sql,
        filter: &DeadLetterFilter,
        tail: &str,
        more: Vec<Value>,
    ) -> (AssertSqlSafe<String>, Vec<Value>) {
        let (template, mut values) = letters(&DIALECT, select.as_str(), filter);
        values.extend(more);
        (AssertSqlSafe(DIALECT.fill(&(template + tail), self.prefix())), values)
    }
}
