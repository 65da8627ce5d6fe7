//! The consumer's side: one transaction contains the inbox row and the handler's writes.
//!
//! Live traffic and a redrive of the same key synchronise on one row of `held_key`. `admit` locks it before it queues a
//! message behind a dead letter; `complete_redriven` locks it before it checks whether anything is still queued. So the
//! new message is either queued and seen, or its key is free and it runs after the last dead letter's effect.

mod batch;
mod sequence;
mod view;

use landfall_core::adapter::{
    Admission, Arrival, BatchAdmission, Hold, Origin, Parking, RedriveItem, Setback, StoredError,
};
use landfall_core::{DeadLetterId, Error, ErrorKind, GroupName, Inbox, Message, MessageId, Result};
use landfall_sql_toolkit::{NewDeadLetter, audit_action, bind_message, consumer_actor, status_after};
use sqlx::MySqlConnection;

use crate::connection::transaction::CHECK_OPEN;
use crate::outbox::settle::micros;
use crate::statements::Sql;
use crate::{MySql, row, timestamp};

impl Inbox for MySql {
    async fn admit(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<Admission> {
        if message.mode.is_deduplicated() {
            let taken = sqlx::query(self.statements().admit.text())
                .bind(group.as_str())
                .bind(message.id.as_uuid())
                .execute(&mut *connection)
                .await
                .map_err(self.could_not("insert an inbox row"))?;
            if taken.rows_affected() == 0 {
                return Ok(Admission::Duplicate);
            }
        }
        if !self.lock_held_key(connection, group.as_str(), message.topic.as_str(), key_of(message)).await? {
            return Ok(Admission::Fresh);
        }
        self.queue_behind(connection, group, message, origin).await?;
        Ok(Admission::Held)
    }

    async fn keep_forever(&self, connection: &mut MySqlConnection, group: &GroupName, id: MessageId) -> Result<()> {
        sqlx::query(self.statements().keep_forever.text())
            .bind(group.as_str())
            .bind(id.as_uuid())
            .execute(connection)
            .await
            .map_err(self.could_not("keep an inbox row"))?;
        Ok(())
    }

    async fn admit_batch(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        let inserted = self.insert_new(connection, group, &BatchAdmission::ids(batch)).await?;
        let admission = BatchAdmission::new(batch, inserted);
        let held = self.lock_held_keys(connection, group, &admission.keys()).await?;
        let admissions = admission.finish(&held);
        for (arrival, _) in batch.iter().zip(&admissions).filter(|(_, admission)| **admission == Admission::Held) {
            self.queue_behind(connection, group, arrival.message, arrival.origin).await?;
        }
        Ok(admissions)
    }

    async fn park(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> Result<DeadLetterId> {
        let failure = parking.failure;
        let letter = NewDeadLetter::failed(group, message, origin, parking);
        let action = audit_action(letter.status);
        let id = self.write_letter(connection, &self.statements().park, letter).await?;
        self.hold_key(connection, id).await?;
        self.audit_letter(connection, id, &consumer_actor(group.as_str()), action, &failure.error).await?;
        Ok(id)
    }

    async fn next_redriven(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> Result<Option<RedriveItem>> {
        // Delayed messages belong to live traffic and come first: a large redrive must not delay them.
        for statement in [&self.statements().next_delayed, &self.statements().next_redriven] {
            let found = sqlx::query(statement.text())
                .bind(group.as_str())
                .bind(serde_json::Value::from(resting).to_string())
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.could_not("read the next redriven message"))?;
            if let Some(found) = found {
                return row::redrive_item(&found).map(Some);
            }
        }
        Ok(None)
    }

    async fn complete_redriven(&self, connection: &mut MySqlConnection, item: &RedriveItem) -> Result<()> {
        let doing = "complete a redriven message";
        // After a deadlock in the handler has ended the transaction, the update would commit alone, without the effect.
        sqlx::raw_sql(CHECK_OPEN).execute(&mut *connection).await.map_err(self.could_not_commit())?;
        let done = sqlx::query(self.statements().complete_redriven.text())
            .bind(item.id)
            .execute(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        if done.rows_affected() == 0 {
            // An effect without a redrive must not be committed.
            let sentence = format!("dead letter {} is not being redriven; roll the transaction back", item.id);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        let group = self.group_of(connection, item.id).await?;
        self.audit_letter(connection, item.id, &consumer_actor(&group), "effect", "").await?;
        self.hand_over_key(connection, &group, item.message.topic.as_str(), key_of(&item.message)).await
    }

    async fn park_redriven(
        &self,
        connection: &mut MySqlConnection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        let Setback { attempts, failure, hold, again } = setback;
        let status = status_after(again);
        let action = audit_action(status);
        let StoredError { fingerprint, causes } = StoredError::from_failure(failure);
        let parked = sqlx::query(self.statements().park_redriven.text())
            .bind(status.as_str())
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(failure.code.as_str())
            .bind(row::storable(&failure.error))
            .bind(again.map(micros))
            .bind(hold == Hold::Key)
            .bind(fingerprint)
            .bind(causes)
            .bind(item.id)
            .execute(&mut *connection)
            .await
            .map_err(self.could_not("park a redriven message"))?;
        if parked.rows_affected() == 0 {
            return Ok(false);
        }
        let group = self.group_of(connection, item.id).await?;
        self.hold_key(connection, item.id).await?;
        self.audit_letter(connection, item.id, &consumer_actor(&group), action, &failure.error).await?;
        if hold == Hold::Nothing {
            self.hand_over_key(connection, &group, item.message.topic.as_str(), key_of(&item.message)).await?;
        }
        Ok(true)
    }
}

impl MySql {
    /// Returns whether the key is held for `group`. A held key is locked until the transaction ends.
    async fn lock_held_key(
        &self,
        connection: &mut MySqlConnection,
        group: &str,
        topic: &str,
        key: Option<&str>,
    ) -> Result<bool> {
        let Some(key) = key else { return Ok(false) };
        let locked = sqlx::query(self.statements().lock_held_key.text())
            .bind(group)
            .bind(topic)
            .bind(key)
            .fetch_optional(connection)
            .await
            .map_err(self.could_not("lock a held key"))?;
        Ok(locked.is_some())
    }

    /// Makes the next dead letter of the key due, or frees the key, after a message has stopped holding it.
    pub(crate) async fn hand_over_key(
        &self,
        connection: &mut MySqlConnection,
        group: &str,
        topic: &str,
        key: Option<&str>,
    ) -> Result<()> {
        let doing = "hand over a key";
        if !self.lock_held_key(connection, group, topic, key).await? {
            return Ok(());
        }
        let head: Option<DeadLetterId> = sqlx::query_scalar(self.statements().head_of_key.text())
            .bind(group)
            .bind(topic)
            .bind(key)
            .fetch_optional(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        let query = match head {
            Some(head) => sqlx::query(self.statements().hand_over_key.text()).bind(head),
            None => sqlx::query(self.statements().free_key.text()).bind(group).bind(topic).bind(key),
        };
        query.execute(connection).await.map_err(self.could_not(doing))?;
        Ok(())
    }

    async fn group_of(&self, connection: &mut MySqlConnection, id: DeadLetterId) -> Result<String> {
        sqlx::query_scalar(self.statements().group_of.text())
            .bind(id)
            .fetch_one(connection)
            .await
            .map_err(self.could_not("read a dead letter"))
    }

    async fn queue_behind(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<()> {
        let letter = NewDeadLetter::waiting(group, message, origin);
        let error = letter.error;
        let id = self.write_letter(connection, &self.statements().queue_behind, letter).await?;
        self.audit_letter(connection, id, &consumer_actor(group.as_str()), "queue", error).await
    }

    async fn write_letter(
        &self,
        connection: &mut MySqlConnection,
        statement: &Sql,
        letter: NewDeadLetter<'_>,
    ) -> Result<DeadLetterId> {
        let NewDeadLetter { group, message, origin, status, code, error, attempts, hold, retry_after, stored } = letter;
        let query = sqlx::query(statement.text()).bind(group.as_str());
        let written = bind_message(query, message, message.id.as_uuid(), timestamp::text(message.time))
            .bind(origin.map(|position| i64::from(position.partition)))
            .bind(origin.map(|position| position.offset as i64))
            .bind(status.as_str())
            .bind(code.as_str())
            .bind(row::storable(error))
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(hold == Hold::Key)
            .bind(retry_after.map(micros))
            .bind(stored.fingerprint)
            .bind(stored.causes)
            .execute(connection)
            .await
            .map_err(self.could_not("insert a dead letter"))?;
        Ok(written.last_insert_id() as DeadLetterId)
    }
}

fn key_of(message: &Message) -> Option<&str> {
    message.key.as_ref().map(|key| key.as_str())
}
