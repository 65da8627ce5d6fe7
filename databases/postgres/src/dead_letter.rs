//! Dead letters as operators find and redrive them.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetters, Discarded, OpenLetters,
    OutboxWriter, Redriven, Result,
};
use landfall_sql_toolkit::{
    check_edited_payload, dead_letter_stats, edit_refused, open_letters, push_dead_letter_filter,
};
use sqlx::{PgConnection, QueryBuilder};

use crate::statements::Sql;
use crate::timestamp::TimestampTz;
use crate::{Postgres, row};

#[async_trait]
impl DeadLetters for Postgres {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut query = matching(&self.statements().find, filter);
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = self.rows("find dead letters", query.build().persistent(self.may_prepare())).await?;
        rows.iter().map(row::dead_letter).collect()
    }

    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven> {
        let mut transaction = self.begin().await?;
        let parked = self.lock_parked(&mut transaction, filter).await?;
        let skipped = self.not_parked(&mut transaction, filter).await?;
        let (relay, consumer): (Vec<_>, Vec<_>) = parked.iter().partition(|(_, is_relay)| *is_relay);
        let ids = |letters: Vec<(DeadLetterId, bool)>| letters.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let (relay, consumer) = (ids(relay), ids(consumer));
        let actor = row::storable(actor);
        if !consumer.is_empty() {
            self.run(&mut transaction, &self.statements().redrive_consumer, &consumer, Some(&actor)).await?;
        }
        if !relay.is_empty() {
            self.run(&mut transaction, &self.statements().redrive_relay, &relay, Some(&actor)).await?;
            // The keys are locked before they are released, so that a dead letter that the relay parks meanwhile is
            // seen.
            self.run(&mut transaction, &self.statements().lock_relay_keys, &relay, None).await?;
            self.run(&mut transaction, &self.statements().release_relay_keys, &relay, None).await?;
        }
        self.commit(transaction).await?;
        if !relay.is_empty() {
            self.wake();
        }
        Ok(Redriven { redriven: ids(parked), skipped })
    }

    async fn discard(&self, filter: &DeadLetterFilter, reason: &str, actor: &str) -> Result<Discarded> {
        let (doing, sql) = ("discard dead letters", self.statements());
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
    /// Locks the parked dead letters that match, oldest first. Returns each with whether it is the relay's.
    async fn lock_parked(
        &self,
        connection: &mut PgConnection,
        filter: &DeadLetterFilter,
    ) -> Result<Vec<(DeadLetterId, bool)>> {
        let mut query = matching(&self.statements().find_ids, filter);
        query.push(" AND status = 'parked' ORDER BY id FOR UPDATE");
        query
            .build_query_as()
            .persistent(self.may_prepare())
            .fetch_all(connection)
            .await
            .map_err(self.could_not("lock dead letters"))
    }

    async fn not_parked(&self, connection: &mut PgConnection, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterId>> {
        let mut query = matching(&self.statements().find_ids, filter);
        query.push(" AND status <> 'parked' ORDER BY id");
        query
            .build_query_scalar()
            .persistent(self.may_prepare())
            .fetch_all(connection)
            .await
            .map_err(self.could_not("find dead letters"))
    }

    /// Runs a statement of a redrive on some dead letters, with the actor for the audit trail if it writes that.
    async fn run(
        &self,
        connection: &mut PgConnection,
        statement: &Sql,
        letters: &[DeadLetterId],
        actor: Option<&str>,
    ) -> Result<()> {
        let mut query = self.query(statement).bind(letters);
        if let Some(actor) = actor {
            query = query.bind(actor);
        }
        query.execute(connection).await.map_err(self.could_not("redrive dead letters"))?;
        Ok(())
    }
}

/// Returns the statement with a condition for every field of the filter that is set.
fn matching(statement: &Sql, filter: &DeadLetterFilter) -> QueryBuilder<sqlx::Postgres> {
    let error_code = filter.error_code.as_deref().map(row::storable);
    let filter = DeadLetterFilter { error_code, ..filter.clone() };
    let mut query = QueryBuilder::new(statement.as_str());
    push_dead_letter_filter(&mut query, &filter, "key", |id| id.as_uuid(), TimestampTz);
    query
}
