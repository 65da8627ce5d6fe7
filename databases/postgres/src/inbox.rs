//! The consumer's side: one transaction holds the inbox row, the handler's writes and nothing else.
//!
//! Live traffic and a redrive of the same key meet on one row of `held_key`. `admit` locks it before it queues a
//! message behind a dead letter; `complete_redriven` locks it before it looks whether anything is still queued. So
//! either the newcomer is queued and seen, or the key is free and the newcomer goes on after the last letter's effect.

use landfall_core::{
    Admission, Arrival, BatchAdmission, DeadLetterId, Error, ErrorCode, ErrorKind, GroupName, Hold, Inbox, Message,
    MessageId, Origin, Parking, RedriveItem, Result, Setback,
};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres as Server};
use uuid::Uuid;

use crate::housekeeping::seconds;
use crate::moment::Moment;
use crate::statements::Sql;
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
                .map_err(self.could_not("take charge of a message"))?;
            if !fresh {
                return Ok(Admission::Duplicate);
            }
            held
        } else {
            self.lock_held_key(connection, group.as_str(), message).await?
        };
        if !held {
            return Ok(Admission::Fresh);
        }
        self.queue_behind(connection, group, message, origin).await?;
        Ok(Admission::Held)
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
            .map_err(self.could_not("take charge of a batch"))?;
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
        let row = self
            .bind_letter(&self.statements().park, group, message, origin)
            .bind(failure.code.as_str())
            .bind(row::storable(&failure.error))
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(hold == Hold::Key)
            .bind(again.map(seconds))
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
        // What is delayed belongs to live traffic and comes first: a redrive of many must not keep it waiting.
        for statement in [&self.statements().next_delayed, &self.statements().next_redriven] {
            let row = self
                .query(statement)
                .bind(group.as_str())
                .bind(resting)
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.could_not("look for a redriven message"))?;
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
            // An effect that belongs to nobody's redrive must not be committed.
            let sentence = format!("dead letter {} is not being redriven; roll the transaction back", item.id);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        };
        self.pass_key_on(connection, &group, &item.message).await
    }

    async fn park_redriven(
        &self,
        connection: &mut PgConnection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        let Setback { attempts, failure, hold, again } = setback;
        let group: Option<String> = self
            .query_scalar(&self.statements().park_redriven)
            .bind(item.id)
            .bind(failure.code.as_str())
            .bind(row::storable(&failure.error))
            .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
            .bind(again.map(seconds))
            .bind(hold == Hold::Key)
            .fetch_optional(&mut *connection)
            .await
            .map_err(self.could_not("park a redriven message"))?;
        if let Some(group) = group.as_deref().filter(|_| hold == Hold::Nothing) {
            self.pass_key_on(connection, group, &item.message).await?;
        }
        Ok(group.is_some())
    }
}

impl Postgres {
    /// Gives the key of `message`, which does not hold it any more, to the next letter that waits for it, or frees it.
    async fn pass_key_on(&self, connection: &mut PgConnection, group: &str, message: &Message) -> Result<()> {
        if self.lock_held_key(connection, group, message).await? {
            self.query(&self.statements().hand_over_key)
                .bind(group)
                .bind(message.topic.as_str())
                .bind(message.key.as_ref().map(|key| key.as_str()))
                .execute(connection)
                .await
                .map_err(self.could_not("pass on a key"))?;
        }
        Ok(())
    }

    /// Whether the message's key is held for `group`; if so, nobody else releases it before this transaction ends.
    async fn lock_held_key(&self, connection: &mut PgConnection, group: &str, message: &Message) -> Result<bool> {
        let Some(key) = &message.key else { return Ok(false) };
        let locked = self
            .query(&self.statements().lock_held_key)
            .bind(group)
            .bind(message.topic.as_str())
            .bind(key.as_str())
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

    /// The twelve parameters that `queue_behind` and `park` begin with.
    fn bind_letter<'q>(
        &self,
        statement: &Sql,
        group: &'q GroupName,
        message: &'q Message,
        origin: Origin,
    ) -> Query<'q, Server, PgArguments> {
        self.query(statement)
            .bind(group.as_str())
            .bind(message.id.as_uuid())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(message.sequence)
            .bind(message.kind.as_str())
            .bind(message.mode.as_str())
            .bind(message.headers.to_json())
            .bind(&message.payload[..])
            .bind(Moment(message.time))
            // The columns are signed and the broker's numbers are not; the bits come back as they were.
            .bind(origin.map(|position| position.partition as i32))
            .bind(origin.map(|position| position.offset as i64))
    }
}
