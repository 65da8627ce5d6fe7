//! Dead letters as people see and redrive them, and the steps that the inbox and the outbox share with them.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetterStatus, DeadLetters, OutboxWriter,
    Redriven, Result,
};
use sqlx::{MySqlConnection, QueryBuilder};

use crate::retry::retried;
use crate::statements::{ByRows, Sql};
use crate::{MySql, moment, row};

#[async_trait]
impl DeadLetters for MySql {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut query = matching(&self.statements().find, filter);
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("find dead letters"))?;
        rows.iter().map(row::dead_letter).collect()
    }

    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven> {
        let actor = row::actor(actor);
        let (redriven, back_in_outbox) = retried(|| self.redrive_once(filter, &actor)).await?;
        if back_in_outbox {
            self.wake();
        }
        Ok(redriven)
    }

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats> {
        let rows: Vec<(String, i64)> = sqlx::query_as(self.statements().dead_letter_stats.text())
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("count dead letters"))?;
        let mut stats = DeadLetterStats::default();
        for (status, count) in rows {
            let count = count.unsigned_abs();
            match status.parse()? {
                DeadLetterStatus::Parked => stats.parked = count,
                DeadLetterStatus::Delayed => stats.delayed = count,
                DeadLetterStatus::Waiting => stats.waiting = count,
                DeadLetterStatus::Redriving => stats.redriving = count,
                DeadLetterStatus::Done => stats.done = count,
            }
        }
        Ok(stats)
    }

    async fn parked_age_p95(&self) -> Result<Duration> {
        let older = DeadLetterStats::rank_of_p95(self.dead_letter_stats().await?.parked);
        let age: Option<i64> = sqlx::query_scalar(self.statements().parked_age_p95.text())
            .bind(i64::try_from(older).unwrap_or(i64::MAX))
            .fetch_optional(self.pool())
            .await
            .map_err(self.could_not("ask for the age of dead letters"))?;
        Ok(Duration::from_micros(age.unwrap_or_default().unsigned_abs()))
    }
}

impl MySql {
    /// Answers with what was redriven, and whether any of it went back into the outbox.
    ///
    /// What is parked is found without a lock and then locked by name: a reader that locks whatever it looks at would
    /// wait for every letter that a consumer is handling at this moment.
    async fn redrive_once(&self, filter: &DeadLetterFilter, actor: &str) -> Result<(Redriven, bool)> {
        let (doing, sql) = ("redrive dead letters", self.statements());
        let found = self.matching(filter).await?;
        let parked: Vec<DeadLetterId> = found.iter().filter(|(_, is_parked)| *is_parked).map(|(id, _)| *id).collect();
        let mut skipped: Vec<DeadLetterId> =
            found.iter().filter(|(_, is_parked)| !*is_parked).map(|(id, _)| *id).collect();
        if parked.is_empty() {
            return Ok((Redriven { redriven: parked, skipped }, false));
        }
        let mut transaction = self.begin().await?;
        let locked = self.lock_parked(&mut transaction, &parked).await?;
        let redriven: Vec<DeadLetterId> = locked.iter().map(|(id, _)| *id).collect();
        // Somebody else was faster with these.
        skipped.extend(parked.iter().filter(|id| redriven.binary_search(id).is_err()));
        skipped.sort_unstable();
        let of = |is_relay: bool| -> Vec<DeadLetterId> {
            locked.iter().filter(|(_, is)| *is == is_relay).map(|(id, _)| *id).collect()
        };
        let (relay, consumer) = (of(true), of(false));
        self.run(&mut transaction, &sql.redrive_consumer, &consumer, doing).await?;
        self.run(&mut transaction, &sql.return_to_outbox, &relay, doing).await?;
        self.run(&mut transaction, &sql.redrive_relay, &relay, doing).await?;
        // Locked first and looked at afterwards: a letter that the relay parks meanwhile is seen.
        self.run(&mut transaction, &sql.lock_relay_keys, &relay, doing).await?;
        self.run(&mut transaction, &sql.release_relay_keys, &relay, doing).await?;
        self.run_with(&mut transaction, &sql.audit_letters, &redriven, doing, |query| {
            query.bind(actor.to_owned()).bind("redrive")
        })
        .await?;
        self.commit(transaction).await?;
        Ok((Redriven { redriven, skipped }, !relay.is_empty()))
    }

    /// What matches, oldest first, and whether it is parked.
    async fn matching(&self, filter: &DeadLetterFilter) -> Result<Vec<(DeadLetterId, bool)>> {
        let mut query = matching(&self.statements().find_ids, filter);
        query.push(" ORDER BY id");
        let query = query.build_query_as().persistent(false);
        query.fetch_all(self.pool()).await.map_err(self.could_not("find dead letters"))
    }

    /// Those of `ids` that are still parked, in their order, and whether they are the relay's.
    async fn lock_parked(
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

    /// Later messages of the letter's topic and key wait from now on.
    pub(crate) async fn hold_key(&self, connection: &mut MySqlConnection, letter: DeadLetterId) -> Result<()> {
        let query = sqlx::query(self.statements().hold_key.text()).bind(letter);
        query.execute(connection).await.map_err(self.could_not("hold a key"))?;
        Ok(())
    }

    /// Writes the audit trail: who did what to it.
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

/// `statement` with a condition for each field of the filter that is set. Values are bound, never pasted.
fn matching(statement: &Sql, filter: &DeadLetterFilter) -> QueryBuilder<sqlx::MySql> {
    let DeadLetterFilter { id, message_id, group, topic, key, error_code, status, from, to, after } = filter;
    let mut query = QueryBuilder::new(statement.as_str());
    if let Some(id) = id {
        query.push(" AND id = ").push_bind(*id);
    }
    if let Some(message_id) = message_id {
        query.push(" AND message_id = ").push_bind(message_id.as_uuid());
    }
    if let Some(group) = group {
        query.push(" AND consumer_group = ").push_bind(group.as_str().to_owned());
    }
    if let Some(topic) = topic {
        query.push(" AND topic = ").push_bind(topic.as_str().to_owned());
    }
    if let Some(key) = key {
        query.push(" AND `key` = ").push_bind(key.as_str().to_owned());
    }
    if let Some(error_code) = error_code {
        query.push(" AND error_code = ").push_bind(error_code.clone());
    }
    if let Some(status) = status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(from) = from {
        query.push(" AND first_seen >= ").push_bind(moment::text(*from));
    }
    if let Some(to) = to {
        query.push(" AND first_seen < ").push_bind(moment::text(*to));
    }
    if let Some(after) = after {
        query.push(" AND id > ").push_bind(*after);
    }
    query
}
