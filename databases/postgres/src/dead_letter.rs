//! Dead letters as people see and redrive them.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetters, OutboxWriter, Redriven, Result,
};
use sqlx::{PgConnection, QueryBuilder};

use crate::moment::Moment;
use crate::statements::Sql;
use crate::{Postgres, row};

#[async_trait]
impl DeadLetters for Postgres {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut query = matching(&self.statements().find, filter);
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let doing = "find dead letters";
        let mut session = self.session().await?;
        let rows = query.build().persistent(self.may_prepare()).fetch_all(session.connection()).await;
        let rows = rows.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
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
            // Locked first and looked at afterwards: a letter that the relay parks meanwhile is seen.
            self.run(&mut transaction, &self.statements().lock_relay_keys, &relay, None).await?;
            self.run(&mut transaction, &self.statements().release_relay_keys, &relay, None).await?;
        }
        self.commit(transaction).await?;
        if !relay.is_empty() {
            self.wake();
        }
        Ok(Redriven { redriven: ids(parked), skipped })
    }

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats> {
        let doing = "count dead letters";
        let mut session = self.session().await?;
        let (parked, waiting, redriving, done, delayed): (i64, i64, i64, i64, i64) = self
            .query_as(&self.statements().dead_letter_stats)
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(DeadLetterStats {
            parked: parked as u64,
            waiting: waiting as u64,
            redriving: redriving as u64,
            done: done as u64,
            delayed: delayed as u64,
        })
    }

    async fn parked_age_p95(&self) -> Result<Duration> {
        let doing = "ask for the age of dead letters";
        let mut session = self.session().await?;
        let age: Option<i64> = self
            .query_scalar(&self.statements().parked_age_p95)
            .fetch_optional(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(Duration::from_micros(age.unwrap_or_default().unsigned_abs()))
    }
}

impl Postgres {
    /// What matches and is parked, oldest first, and whether it is the relay's.
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

    /// One of the statements of a redrive: about some letters, and perhaps on somebody's behalf.
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

/// `statement` with a condition for each field of the filter that is set, so that each combination gets its own plan.
fn matching(statement: &Sql, filter: &DeadLetterFilter) -> QueryBuilder<sqlx::Postgres> {
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
        query.push(" AND key = ").push_bind(key.as_str().to_owned());
    }
    if let Some(error_code) = error_code {
        query.push(" AND error_code = ").push_bind(row::storable(error_code));
    }
    if let Some(status) = status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(from) = from {
        query.push(" AND first_seen >= ").push_bind(Moment(*from));
    }
    if let Some(to) = to {
        query.push(" AND first_seen < ").push_bind(Moment(*to));
    }
    if let Some(after) = after {
        query.push(" AND id > ").push_bind(*after);
    }
    query
}
