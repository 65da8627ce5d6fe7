//! Dead letters as operators find and redrive them, and the steps that they share with the inbox and the outbox.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetters, OutboxWriter, Redriven, Result,
};
use landfall_sql_toolkit::{dead_letter_stats, push_dead_letter_filter};
use sqlx::{MySqlConnection, QueryBuilder};

use crate::connection::retry::retry_deadlocks;
use crate::statements::{ByRows, Sql};
use crate::{MySql, row, timestamp};

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
        let (redriven, back_in_outbox) = retry_deadlocks(|| self.redrive_once(filter, &actor)).await?;
        if back_in_outbox {
            self.wake();
        }
        Ok(redriven)
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
    /// Returns which dead letters were redriven, and whether any of them went back into the outbox.
    ///
    /// Parked dead letters are found without locks and then locked by id: a statement that locks rows while searching
    /// would wait for every dead letter that a consumer is handling.
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
        // Another session has redriven these meanwhile.
        skipped.extend(parked.iter().filter(|id| redriven.binary_search(id).is_err()));
        skipped.sort_unstable();
        let of = |is_relay: bool| -> Vec<DeadLetterId> {
            locked.iter().filter(|(_, is)| *is == is_relay).map(|(id, _)| *id).collect()
        };
        let (relay, consumer) = (of(true), of(false));
        self.run(&mut transaction, &sql.redrive_consumer, &consumer, doing).await?;
        self.run(&mut transaction, &sql.return_to_outbox, &relay, doing).await?;
        self.run(&mut transaction, &sql.redrive_relay, &relay, doing).await?;
        // The keys are locked before they are released, so that a dead letter that the relay parks meanwhile is seen.
        self.run(&mut transaction, &sql.lock_relay_keys, &relay, doing).await?;
        self.run(&mut transaction, &sql.release_relay_keys, &relay, doing).await?;
        self.run_with(&mut transaction, &sql.audit_letters, &redriven, doing, |query| {
            query.bind(actor.to_owned()).bind("redrive")
        })
        .await?;
        self.commit(transaction).await?;
        Ok((Redriven { redriven, skipped }, !relay.is_empty()))
    }

    /// Returns the dead letters that match, oldest first, each with whether it is parked.
    async fn matching(&self, filter: &DeadLetterFilter) -> Result<Vec<(DeadLetterId, bool)>> {
        let mut query = matching(&self.statements().find_ids, filter);
        query.push(" ORDER BY id");
        let query = query.build_query_as().persistent(false);
        query.fetch_all(self.pool()).await.map_err(self.could_not("find dead letters"))
    }

    /// Locks those of `ids` that are still parked. Returns each with whether it is the relay's.
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

/// Returns the statement with a condition for every field of the filter that is set.
fn matching(statement: &Sql, filter: &DeadLetterFilter) -> QueryBuilder<sqlx::MySql> {
    let mut query = QueryBuilder::new(statement.as_str());
    push_dead_letter_filter(&mut query, filter, "`key`", |id| id.as_uuid(), timestamp::text);
    query
}
