//! Dead letters as operators find and redrive them, and the steps that they share with the inbox and the outbox.

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
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::connection::retry::retry_deadlocks;
use crate::portable::DIALECT;
use crate::statements::{ByRows, Sql};
use crate::{MySql, row};

#[async_trait]
impl DeadLetters for MySql {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        self.selected(&self.statements().find, filter, limit).await
    }

    async fn list_letters(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        self.selected(&self.statements().list_letters, filter, limit).await
    }

    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven> {
        let actor = row::actor(actor);
        let (redriven, back_in_outbox) = retry_deadlocks(|| self.redrive_once(filter, &actor)).await?;
        if back_in_outbox {
            self.wake();
        }
        Ok(redriven)
    }

    async fn discard(&self, filter: &DeadLetterFilter, reason: &str, actor: &str) -> Result<Discarded> {
        let (reason, actor) = (row::storable(reason), row::actor(actor));
        let (discarded, frees_outbox) = retry_deadlocks(|| self.discard_once(filter, &reason, &actor)).await?;
        if frees_outbox {
            self.wake();
        }
        Ok(discarded)
    }

    async fn edit(&self, id: DeadLetterId, payload: &[u8], actor: &str) -> Result<()> {
        check_edited_payload(&self.inner.limits, payload)?;
        let actor = row::actor(actor);
        let edited = retry_deadlocks(|| self.edit_once(id, payload, &actor)).await?;
        if !edited {
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
        let rows = sqlx::query_as(self.statements().open_letters.text())
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("count dead letters"))?;
        open_letters(rows)
    }

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats> {
        let counts = sqlx::query_as(self.statements().dead_letter_stats.text())
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("count dead letters"))?;
        dead_letter_stats(counts)
    }

    async fn parked_age_p95(&self) -> Result<Duration> {
        let older = DeadLetterStats::rank_of_p95(self.dead_letter_stats().await?.parked);
        let age: Option<i64> = sqlx::query_scalar(self.statements().parked_age_p95.text())
            .bind(i64::try_from(older).unwrap_or(i64::MAX))
            .fetch_optional(self.pool())
            .await
            .map_err(self.could_not("read the age of dead letters"))?;
        Ok(Duration::from_micros(age.unwrap_or_default().unsigned_abs()))
    }
}

impl MySql {
    async fn selected(&self, select: &Sql, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        prepare_letters(self, filter).await?;
        let limit = (limit as u64).into();
        let (text, values) = self.matching_letters(select, filter, " ORDER BY id LIMIT ?", vec![limit]);
        let rows = bind_values(sqlx::query(text).persistent(false), values)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("find dead letters"))?;
        rows.iter().map(row::dead_letter).collect()
    }

    /// Returns which dead letters were redriven, and whether any of them went back into the outbox.
    ///
    /// Parked dead letters are found without locks and then locked by id: a statement that locks rows while searching
    /// would wait for every dead letter that a consumer is handling.
    async fn redrive_once(&self, filter: &DeadLetterFilter, actor: &str) -> Result<(Redriven, bool)> {
        let found = self.matching(filter).await?;
        let mut transaction = self.begin().await?;
        let (locked, skipped) = self.lock_found(&mut transaction, &found).await?;
        let redriven = self.redrive_parked(&mut transaction, &locked, actor, "").await?;
        let has_relay = locked.iter().any(|(_, is_relay)| *is_relay);
        self.commit(transaction).await?;
        Ok((Redriven { redriven, skipped }, has_relay))
    }

    /// Redrives locked letters, each with whether it is the relay's, and returns their ids.
    pub(crate) async fn redrive_parked(
        &self,
        connection: &mut MySqlConnection,
        locked: &[(DeadLetterId, bool)],
        actor: &str,
        detail: &str,
    ) -> Result<Vec<DeadLetterId>> {
        let (doing, sql) = ("redrive dead letters", self.statements());
        let redriven: Vec<DeadLetterId> = locked.iter().map(|(id, _)| *id).collect();
        let of = |is_relay: bool| -> Vec<DeadLetterId> {
            locked.iter().filter(|(_, is)| *is == is_relay).map(|(id, _)| *id).collect()
        };
        let (relay, consumer) = (of(true), of(false));
        self.run(connection, &sql.redrive_consumer, &consumer, doing).await?;
        self.run(connection, &sql.return_to_outbox, &relay, doing).await?;
        self.run(connection, &sql.redrive_relay, &relay, doing).await?;
        // The keys are locked before they are released, so that a dead letter that the relay parks meanwhile is seen.
        self.run(connection, &sql.lock_relay_keys, &relay, doing).await?;
        self.run(connection, &sql.release_relay_keys, &relay, doing).await?;
        self.run_with(connection, &sql.audit_letters, &redriven, doing, |query| {
            query.bind(actor.to_owned()).bind("redrive").bind(detail.to_owned())
        })
        .await?;
        Ok(redriven)
    }

    /// Returns which dead letters were discarded, and whether any of them was the relay's.
    async fn discard_once(&self, filter: &DeadLetterFilter, reason: &str, actor: &str) -> Result<(Discarded, bool)> {
        let (doing, sql) = ("discard dead letters", self.statements());
        let found = self.matching(filter).await?;
        let mut transaction = self.begin().await?;
        let (locked, skipped) = self.lock_found(&mut transaction, &found).await?;
        let discarded: Vec<DeadLetterId> = locked.iter().map(|(id, _)| *id).collect();
        let relay: Vec<DeadLetterId> = locked.iter().filter(|(_, is_relay)| *is_relay).map(|(id, _)| *id).collect();
        self.run(&mut transaction, &sql.discard, &discarded, doing).await?;
        for chunk in discarded.chunks(ByRows::MOST) {
            let (text, bound) = sql.keys_of.fit(chunk);
            let query = bound.fold(sqlx::query_as(text), |query, id| query.bind(id));
            let keys: Vec<(String, String, String)> =
                query.fetch_all(&mut *transaction).await.map_err(self.could_not(doing))?;
            for (group, topic, key) in keys.iter().filter(|(group, ..)| !group.is_empty()) {
                self.hand_over_key(&mut transaction, group, topic, Some(key)).await?;
            }
        }
        self.run(&mut transaction, &sql.lock_relay_keys, &relay, doing).await?;
        self.run(&mut transaction, &sql.release_relay_keys, &relay, doing).await?;
        self.run_with(&mut transaction, &sql.audit_letters, &discarded, doing, |query| {
            query.bind(actor.to_owned()).bind("discard").bind(reason.to_owned())
        })
        .await?;
        self.commit(transaction).await?;
        Ok((Discarded { discarded, skipped }, !relay.is_empty()))
    }

    /// Returns whether the dead letter was parked and has the new payload.
    async fn edit_once(&self, id: DeadLetterId, payload: &[u8], actor: &str) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let edited = sqlx::query(self.statements().edit.text())
            .bind(payload)
            .bind(id)
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not("edit a dead letter"))?;
        if edited.rows_affected() == 0 {
            return Ok(false);
        }
        let detail = format!("the payload now has {} bytes", payload.len());
        self.audit_letter(&mut transaction, id, actor, "edit", &detail).await?;
        self.commit(transaction).await?;
        Ok(true)
    }

    /// Locks those of `found` that are still parked, each with whether it is the relay's. Also returns the others.
    async fn lock_found(
        &self,
        connection: &mut MySqlConnection,
        found: &[(DeadLetterId, bool)],
    ) -> Result<(Vec<(DeadLetterId, bool)>, Vec<DeadLetterId>)> {
        let parked: Vec<DeadLetterId> = found.iter().filter(|(_, is_parked)| *is_parked).map(|(id, _)| *id).collect();
        let locked = self.lock_parked(connection, &parked).await?;
        // Another session may have changed parked ones meanwhile.
        let is_locked = |id: &DeadLetterId| locked.binary_search_by_key(id, |(id, _)| *id).is_ok();
        let skipped = found.iter().map(|(id, _)| *id).filter(|id| !is_locked(id)).collect();
        Ok((locked, skipped))
    }

    /// Returns the dead letters that match, oldest first, each with whether it is parked. Takes a connection of its
    /// own, so no transaction may be open: a small pool would be exhausted.
    async fn matching(&self, filter: &DeadLetterFilter) -> Result<Vec<(DeadLetterId, bool)>> {
        prepare_letters(self, filter).await?;
        let doing = "find dead letters";
        let (text, values) = self.matching_letters(&self.statements().find_ids, filter, " ORDER BY id", Vec::new());
        let query = bind_values(sqlx::query(text).persistent(false), values);
        let rows = query.fetch_all(self.pool()).await.map_err(self.could_not(doing))?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect::<sqlx::Result<_>>()
            .map_err(self.could_not(doing))
    }

    /// Locks those of `ids` that are still parked. Returns each with whether it is the relay's.
    pub(crate) async fn lock_parked(
        &self,
        connection: &mut MySqlConnection,
        ids: &[DeadLetterId],
    ) -> Result<Vec<(DeadLetterId, bool)>> {
        let mut locked = Vec::new();
        for chunk in ids.chunks(ByRows::MOST) {
            let (text, bound) = self.statements().lock_parked.fit(chunk);
            let query = bound.fold(sqlx::query_as(text), |query, id| query.bind(id));
            let found: Vec<(DeadLetterId, bool)> =
                query.fetch_all(&mut *connection).await.map_err(self.could_not("lock dead letters"))?;
            locked.extend(found);
        }
        Ok(locked)
    }

    /// Makes later messages of the dead letter's topic and key wait.
    pub(crate) async fn hold_key(&self, connection: &mut MySqlConnection, letter: DeadLetterId) -> Result<()> {
        let query = sqlx::query(self.statements().hold_key.text()).bind(letter);
        query.execute(connection).await.map_err(self.could_not("hold a key"))?;
        Ok(())
    }

    /// Writes an action on the dead letter to the audit trail.
    pub(crate) async fn audit_letter(
        &self,
        connection: &mut MySqlConnection,
        letter: DeadLetterId,
        actor: &str,
        action: &str,
        detail: &str,
    ) -> Result<()> {
        sqlx::query(self.statements().audit_letter.text())
            .bind(actor)
            .bind(action)
            .bind(row::storable(detail))
            .bind(letter)
            .execute(connection)
            .await
            .map_err(self.could_not("write the audit trail"))?;
        Ok(())
    }
}

impl MySql {
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
