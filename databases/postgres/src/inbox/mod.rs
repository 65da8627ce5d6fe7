//! The consumer's side: one transaction contains the inbox row and the handler's writes.
//!
//! Live traffic and a redrive of the same key synchronise on one row of `held_key`. `admit` locks it before it queues a
//! message behind a dead letter; `complete_redriven` locks it before it checks whether anything is still queued. So the
//! new message is either queued and seen, or its key is free and it runs after the last dead letter's effect.

mod sequence;
mod view;

use landfall_core::adapter::{
    Admission, Arrival, BatchAdmission, Hold, Origin, Parking, RedriveItem, Setback, StoredError,
};
use landfall_core::{DeadLetterId, Error, ErrorCode, ErrorKind, GroupName, Inbox, Message, MessageId, Result};
use landfall_sql_toolkit::bind_message;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres as Server};
use uuid::Uuid;

use crate::housekeeping::seconds;
use crate::statements::Sql;
use crate::timestamp::TimestampTz;
use crate::{Postgres, row};

impl Inbox for Postgres {
    async fn admit(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<Admission> {
        let held = if message.mode.is_deduplicated() {
            let (fresh, held): (bool, bool) = self
                .query_as(&self.statements().admit)
                .bind(group.as_str())
                .bind(message.id.as_uuid())
                .bind(message.topic.as_str())
                .bind(message.key.as_ref().map(|key| key.as_str()))
                .fetch_one(&mut *connection)
                .await
                .map_err(self.could_not("insert an inbox row"))?;
            if !fresh {
                return Ok(Admission::Duplicate);
            }
            held
        } else {
            self.lock_held_key(connection, group.as_str(), message.topic.as_str(), key_of(message)).await?
        };
        if !held {
            return Ok(Admission::Fresh);
        }
        self.queue_behind(connection, group, message, origin).await?;
        Ok(Admission::Held)
    }

    async fn keep_forever(&self, connection: &mut PgConnection, group: &GroupName, id: MessageId) -> Result<()> {
        self.query(&self.statements().keep_forever)
            .bind(group.as_str())
            .bind(id.as_uuid())
            .execute(connection)
            .await
            .map_err(self.could_not("keep an inbox row"))?;
        Ok(())
    }

    async fn admit_batch(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        let ids: Vec<_> = BatchAdmission::ids(batch).iter().map(|id| id.as_uuid()).collect();
        let inserted: Vec<Uuid> = self
            .query_scalar(&self.statements().admit_batch)
            .bind(group.as_str())
            .bind(ids)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.could_not("insert inbox rows"))?;
        let admission = BatchAdmission::new(batch, inserted.into_iter().map(MessageId::from));
        let (topics, keys): (Vec<_>, Vec<_>) = admission.keys().into_iter().unzip();
        let held: Vec<(String, String)> = self
            .query_as(&self.statements().lock_held_keys)
            .bind(group.as_str())
            .bind(topics)
            .bind(keys)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.could_not("lock held keys"))?;
        let admissions = admission.finish(&held);
        for (arrival, _) in batch.iter().zip(&admissions).filter(|(_, admission)| **admission == Admission::Held) {
            self.queue_behind(connection, group, arrival.message, arrival.origin).await?;
        }
        Ok(admissions)
    }

    async fn park(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> Result<DeadLetterId> {
        let Parking { attempts, failure, hold, again } = parking;
        let StoredError { fingerprint, causes } = StoredError::from_failure(failure);
        let row = self
            .bind_letter(&self.statements().park, group, message, origin)
            .bind(failure.code.as_str())
            .bind(row::storable(&failure.error))
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(hold == Hold::Key)
            .bind(again.map(seconds))
            .bind(fingerprint)
            .bind(causes)
            .fetch_one(connection)
            .await
            .map_err(self.could_not("park a message"))?;
        sqlx::Row::try_get(&row, 0).map_err(self.could_not("park a message"))
    }

    async fn next_redriven(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> Result<Option<RedriveItem>> {
        // Delayed messages belong to live traffic and come first: a large redrive must not delay them.
        for statement in [&self.statements().next_delayed, &self.statements().next_redriven] {
            let row = self
                .query(statement)
                .bind(group.as_str())
                .bind(resting)
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.could_not("read the next redriven message"))?;
            if let Some(row) = row {
                return row::redrive_item(&row).map(Some);
            }
        }
        Ok(None)
    }

    async fn complete_redriven(&self, connection: &mut PgConnection, item: &RedriveItem) -> Result<()> {
        let doing = "complete a redriven message";
        let group: Option<String> = self
            .query_scalar(&self.statements().complete_redriven)
            .bind(item.id)
            .fetch_optional(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        let Some(group) = group else {
            // An effect without a redrive must not be committed.
            let sentence = format!("dead letter {} is not being redriven; roll the transaction back", item.id);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        };
        self.hand_over_key(connection, &group, item.message.topic.as_str(), key_of(&item.message)).await
    }

    async fn park_redriven(
        &self,
        connection: &mut PgConnection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        let Setback { attempts, failure, hold, again } = setback;
        let StoredError { fingerprint, causes } = StoredError::from_failure(failure);
        let group: Option<String> = self
            .query_scalar(&self.statements().park_redriven)
            .bind(item.id)
            .bind(failure.code.as_str())
            .bind(row::storable(&failure.error))
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(again.map(seconds))
            .bind(hold == Hold::Key)
            .bind(fingerprint)
            .bind(causes)
            .fetch_optional(&mut *connection)
            .await
            .map_err(self.could_not("park a redriven message"))?;
        if let Some(group) = group.as_deref().filter(|_| hold == Hold::Nothing) {
            self.hand_over_key(connection, group, item.message.topic.as_str(), key_of(&item.message)).await?;
        }
        Ok(group.is_some())
    }
}

impl Postgres {
    /// Makes the next dead letter of the key due, or frees the key, after a message has stopped holding it.
    pub(crate) async fn hand_over_key(
        &self,
        connection: &mut PgConnection,
        group: &str,
        topic: &str,
        key: Option<&str>,
    ) -> Result<()> {
        if self.lock_held_key(connection, group, topic, key).await? {
            self.query(&self.statements().hand_over_key)
                .bind(group)
                .bind(topic)
                .bind(key)
                .execute(connection)
                .await
                .map_err(self.could_not("hand over a key"))?;
        }
        Ok(())
    }

    /// Returns whether the key is held for `group`. A held key is locked until the transaction ends.
    async fn lock_held_key(
        &self,
        connection: &mut PgConnection,
        group: &str,
        topic: &str,
        key: Option<&str>,
    ) -> Result<bool> {
        let Some(key) = key else { return Ok(false) };
        let locked = self
            .query(&self.statements().lock_held_key)
            .bind(group)
            .bind(topic)
            .bind(key)
            .fetch_optional(connection)
            .await
            .map_err(self.could_not("lock a held key"))?;
        Ok(locked.is_some())
    }

    async fn queue_behind(
        &self,
        connection: &mut PgConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<()> {
        self.bind_letter(&self.statements().queue_behind, group, message, origin)
            .bind(ErrorCode::PREDECESSOR.as_str().to_owned())
            .bind("an earlier message of the same key is not done")
            .execute(connection)
            .await
            .map_err(self.could_not("queue a message behind a dead letter"))?;
        Ok(())
    }

    /// Binds the twelve parameters that `queue_behind` and `park` begin with.
    fn bind_letter<'q>(
        &self,
        statement: &Sql,
        group: &'q GroupName,
        message: &'q Message,
        origin: Origin,
    ) -> Query<'q, Server, PgArguments> {
        let query = self.query(statement).bind(group.as_str());
        bind_message(query, message, message.id.as_uuid(), TimestampTz(message.time))
            // The columns are signed and a broker's numbers are not; the bits come back as they were.
            .bind(origin.map(|position| position.partition as i32))
            .bind(origin.map(|position| position.offset as i64))
    }
}

fn key_of(message: &Message) -> Option<&str> {
    message.key.as_ref().map(|key| key.as_str())
}
