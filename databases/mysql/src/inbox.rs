//! The consumer's side: one transaction holds the inbox row, the handler's writes and nothing else.
//!
//! Live traffic and a redrive of the same key meet on one row of `held_key`. `admit` locks it before it queues a
//! message behind a dead letter; `complete_redriven` locks it before it looks whether anything is still queued. So
//! either the newcomer is queued and seen, or the key is free and the newcomer goes on after the last letter's effect.

use std::time::Duration;

use landfall_core::{
    Admission, Arrival, BatchAdmission, DeadLetterId, DeadLetterStatus, Error, ErrorCode, ErrorKind, GroupName, Hold,
    Inbox, Message, Origin, Parking, RedriveItem, Result, Setback,
};
use sqlx::MySqlConnection;

use crate::database::IS_STILL_OPEN;
use crate::settle::micros;
use crate::statements::Sql;
use crate::{MySql, moment, row};

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
                .map_err(self.could_not("take charge of a message"))?;
            if taken.rows_affected() == 0 {
                return Ok(Admission::Duplicate);
            }
        }
        if !self.lock_held_key(connection, group.as_str(), message).await? {
            return Ok(Admission::Fresh);
        }
        self.queue_behind(connection, group, message, origin).await?;
        Ok(Admission::Held)
    }

    async fn admit_batch(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        let inserted = self.take_charge(connection, group, &BatchAdmission::ids(batch)).await?;
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
        let Parking { attempts, failure, hold, again } = parking;
        let (status, action) = parked_or_delayed(again);
        let (code, error) = (&failure.code, failure.error.as_str());
        let letter = NewLetter { group, message, origin, status, code, error, attempts, hold, again };
        let id = self.write_letter(connection, &self.statements().park, letter).await?;
        self.hold_key(connection, id).await?;
        self.audit_letter(connection, id, &consumer(group.as_str()), action, &failure.error).await?;
        Ok(id)
    }

    async fn next_redriven(
        &self,
        connection: &mut MySqlConnection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> Result<Option<RedriveItem>> {
        // What is delayed belongs to live traffic and comes first: a redrive of many must not keep it waiting.
        for statement in [&self.statements().next_delayed, &self.statements().next_redriven] {
            let found = sqlx::query(statement.text())
                .bind(group.as_str())
                .bind(serde_json::Value::from(resting).to_string())
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.could_not("look for a redriven message"))?;
            if let Some(found) = found {
                return row::redrive_item(&found).map(Some);
            }
        }
        Ok(None)
    }

    async fn complete_redriven(&self, connection: &mut MySqlConnection, item: &RedriveItem) -> Result<()> {
        let doing = "complete a redriven message";
        // In a transaction that a handler's deadlock has ended this would be committed by itself, without the effect.
        sqlx::raw_sql(IS_STILL_OPEN).execute(&mut *connection).await.map_err(self.could_not_commit())?;
        let done = sqlx::query(self.statements().complete_redriven.text())
            .bind(item.id)
            .execute(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        if done.rows_affected() == 0 {
            // An effect that belongs to nobody's redrive must not be committed.
            let sentence = format!("dead letter {} is not being redriven; roll the transaction back", item.id);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        }
        let group = self.group_of(connection, item.id).await?;
        self.audit_letter(connection, item.id, &consumer(&group), "effect", "").await?;
        if self.lock_held_key(connection, &group, &item.message).await? {
            self.pass_key_on(connection, &group, &item.message).await?;
        }
        Ok(())
    }

    async fn park_redriven(
        &self,
        connection: &mut MySqlConnection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        let Setback { attempts, failure, hold, again } = setback;
        let (status, action) = parked_or_delayed(again);
        let parked = sqlx::query(self.statements().park_redriven.text())
            .bind(status.as_str())
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(failure.code.as_str())
            .bind(row::storable(&failure.error))
            .bind(again.map(micros))
            .bind(hold == Hold::Key)
            .bind(item.id)
            .execute(&mut *connection)
            .await
            .map_err(self.could_not("park a redriven message"))?;
        if parked.rows_affected() == 0 {
            return Ok(false);
        }
        let group = self.group_of(connection, item.id).await?;
        self.hold_key(connection, item.id).await?;
        self.audit_letter(connection, item.id, &consumer(&group), action, &failure.error).await?;
        if hold == Hold::Nothing && self.lock_held_key(connection, &group, &item.message).await? {
            self.pass_key_on(connection, &group, &item.message).await?;
        }
        Ok(true)
    }
}

impl MySql {
    /// Whether the message's key is held for `group`; if so, nobody else releases it before this transaction ends.
    async fn lock_held_key(&self, connection: &mut MySqlConnection, group: &str, message: &Message) -> Result<bool> {
        let Some(key) = &message.key else { return Ok(false) };
        let locked = sqlx::query(self.statements().lock_held_key.text())
            .bind(group)
            .bind(message.topic.as_str())
            .bind(key.as_str())
            .fetch_optional(connection)
            .await
            .map_err(self.could_not("lock a held key"))?;
        Ok(locked.is_some())
    }

    /// Gives the key of `message`, which is done, to the next letter that waits for it, or frees it.
    async fn pass_key_on(&self, connection: &mut MySqlConnection, group: &str, message: &Message) -> Result<()> {
        let doing = "pass on a key";
        let key = message.key.as_ref().map(|key| key.as_str());
        let head: Option<DeadLetterId> = sqlx::query_scalar(self.statements().head_of_key.text())
            .bind(group)
            .bind(message.topic.as_str())
            .bind(key)
            .fetch_optional(&mut *connection)
            .await
            .map_err(self.could_not(doing))?;
        let query = match head {
            Some(head) => sqlx::query(self.statements().hand_over_key.text()).bind(head),
            None => {
                let topic = message.topic.as_str();
                sqlx::query(self.statements().free_key.text()).bind(group).bind(topic).bind(key)
            }
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
        let letter = NewLetter {
            group,
            message,
            origin,
            status: DeadLetterStatus::Waiting,
            code: &ErrorCode::PREDECESSOR,
            error: "an earlier message of the same key is not done",
            attempts: 0,
            hold: Hold::Key,
            again: None,
        };
        self.write_letter(connection, &self.statements().queue_behind, letter).await?;
        Ok(())
    }

    async fn write_letter(
        &self,
        connection: &mut MySqlConnection,
        statement: &Sql,
        letter: NewLetter<'_>,
    ) -> Result<DeadLetterId> {
        let NewLetter { group, message, origin, status, code, error, attempts, hold, again } = letter;
        let written = sqlx::query(statement.text())
            .bind(group.as_str())
            .bind(message.id.as_uuid())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(message.sequence)
            .bind(message.kind.as_str())
            .bind(message.mode.as_str())
            .bind(message.headers.to_json())
            .bind(&message.payload[..])
            .bind(moment::text(message.time))
            .bind(origin.map(|position| i64::from(position.partition)))
            .bind(origin.map(|position| position.offset as i64))
            .bind(status.as_str())
            .bind(code.as_str())
            .bind(row::storable(error))
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(hold == Hold::Key)
            .bind(again.map(micros))
            .execute(connection)
            .await
            .map_err(self.could_not("make a message a dead letter"))?;
        Ok(written.last_insert_id() as DeadLetterId)
    }
}

struct NewLetter<'a> {
    group: &'a GroupName,
    message: &'a Message,
    origin: Origin,
    status: DeadLetterStatus,
    code: &'a ErrorCode,
    error: &'a str,
    attempts: u32,
    hold: Hold,
    again: Option<Duration>,
}

/// What a letter is that is to be tried again after this time or never, and what the audit trail calls it.
fn parked_or_delayed(again: Option<Duration>) -> (DeadLetterStatus, &'static str) {
    if again.is_some() { (DeadLetterStatus::Delayed, "delay") } else { (DeadLetterStatus::Parked, "park") }
}

/// Who the audit trail says it was.
fn consumer(group: &str) -> String {
    format!("consumer:{group}")
}
