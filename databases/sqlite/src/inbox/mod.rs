//! The consumer's side: one transaction contains the inbox row, the handler's writes and the dead letters.
//!
//! The transaction holds SQLite's write lock. So two deliveries of a message, or live traffic and a redrive, cannot run
//! at the same time: the second sees what the first committed.

mod sequence;
mod view;

use landfall_core::adapter::{
    Admission, Arrival, BatchAdmission, Hold, Origin, Parking, RedriveItem, Setback, StoredError,
};
use landfall_core::{DeadLetterId, Error, ErrorKind, GroupName, Inbox, Message, MessageId, Result};
use landfall_sql_toolkit::{NewDeadLetter, audit_action, bind_message, consumer_actor, status_after};
use sqlx::{Row, SqliteConnection};

use crate::outbox::settle::millis;
use crate::statements::Sql;
use crate::{Sqlite, dead_letter, row};

impl Inbox for Sqlite {
    async fn admit(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<Admission> {
        let key = message.key.as_ref().map(|key| key.as_str());
        let query = if message.mode.is_deduplicated() {
            sqlx::query_scalar(self.statements().admit.text()).bind(group.as_str()).bind(message.id.to_string())
        } else {
            sqlx::query_scalar(self.statements().is_held.text()).bind(group.as_str())
        };
        let is_held: Vec<bool> = query
            .bind(message.topic.as_str())
            .bind(key)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("admit a message"))?;
        match is_held.first() {
            None => Ok(Admission::Duplicate),
            Some(false) => Ok(Admission::Fresh),
            Some(true) => {
                self.wait_behind(connection, group, message, origin).await?;
                Ok(Admission::Held)
            }
        }
    }

    async fn keep_forever(&self, connection: &mut SqliteConnection, group: &GroupName, id: MessageId) -> Result<()> {
        sqlx::query(self.statements().keep_forever.text())
            .bind(group.as_str())
            .bind(id.to_string())
            .execute(connection)
            .await
            .map_err(self.cannot("keep an inbox row"))?;
        Ok(())
    }

    async fn admit_batch(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        let ids: Vec<String> = BatchAdmission::ids(batch).iter().map(ToString::to_string).collect();
        let inserted: Vec<String> = sqlx::query_scalar(self.statements().admit_batch.text())
            .bind(group.as_str())
            .bind(serde_json::Value::from(ids).to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("admit a batch"))?;
        let inserted = inserted.iter().map(|id| id.parse()).collect::<Result<Vec<_>>>()?;
        let admission = BatchAdmission::new(batch, inserted);
        let names: Vec<_> = admission.keys().into_iter().map(|(topic, key)| vec![topic, key]).collect();
        let held: Vec<(String, String)> = sqlx::query_as(self.statements().are_held.text())
            .bind(group.as_str())
            .bind(serde_json::Value::from(names).to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("read held keys"))?;
        let admissions = admission.finish(&held);
        for (arrival, _) in batch.iter().zip(&admissions).filter(|(_, admission)| **admission == Admission::Held) {
            self.wait_behind(connection, group, arrival.message, arrival.origin).await?;
        }
        Ok(admissions)
    }

    async fn park(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
        parking: Parking<'_>,
    ) -> Result<DeadLetterId> {
        let failure = parking.failure;
        let letter = NewDeadLetter::failed(group, message, origin, parking);
        let action = audit_action(letter.status);
        let ids = insert(letter, &self.statements().park, &mut *connection).await;
        let ids = ids.map_err(self.cannot("park a message"))?;
        let id = ids.first().copied().ok_or_else(|| Error::new(ErrorKind::Internal, "parking returned no id"))?;
        self.hold_keys(&mut *connection, &[id]).await?;
        self.record(connection, &[id], &consumer_actor(group.as_str()), action, &failure.to_string()).await?;
        Ok(id)
    }

    async fn next_redriven(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> Result<Option<RedriveItem>> {
        // Delayed messages belong to live traffic and come first: a large redrive must not delay them.
        for statement in [&self.statements().next_delayed, &self.statements().next_redriven] {
            let found = sqlx::query(statement.text())
                .bind(group.as_str())
                .bind(dead_letter::id_list(resting))
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.cannot("read the next redriven message"))?;
            if let Some(found) = found {
                return row::redrive_item(&found).map(Some);
            }
        }
        Ok(None)
    }

    async fn complete_redriven(&self, connection: &mut SqliteConnection, item: &RedriveItem) -> Result<()> {
        let groups: Vec<String> = sqlx::query_scalar(self.statements().complete_redriven.text())
            .bind(item.id)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("complete a redriven message"))?;
        let Some(group) = groups.first() else {
            // An error makes the caller roll back its transaction, which contains a second effect.
            let sentence = format!("dead letter {} is not being redriven; roll the transaction back", item.id);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        };
        self.record(&mut *connection, &[item.id], &consumer_actor(group), "effect", "").await?;
        self.release_keys(connection, &[item.id]).await
    }

    async fn park_redriven(
        &self,
        connection: &mut SqliteConnection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        let Setback { attempts, failure, hold, again } = setback;
        let action = audit_action(status_after(again));
        let StoredError { fingerprint, causes } = StoredError::from_failure(failure);
        let groups: Vec<String> = sqlx::query_scalar(self.statements().park_redriven.text())
            .bind(item.id)
            .bind(failure.code.as_str())
            .bind(&failure.error)
            .bind(i64::from(attempts))
            .bind(again.map(millis))
            .bind(hold == Hold::Key)
            .bind(fingerprint)
            .bind(causes)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("park a redriven message"))?;
        let Some(group) = groups.first() else {
            return Ok(false);
        };
        self.hold_keys(&mut *connection, &[item.id]).await?;
        if hold == Hold::Nothing {
            self.release_keys(&mut *connection, &[item.id]).await?;
        }
        self.record(connection, &[item.id], &consumer_actor(group), action, &failure.to_string()).await?;
        Ok(true)
    }
}

impl Sqlite {
    async fn wait_behind(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        message: &Message,
        origin: Origin,
    ) -> Result<()> {
        let letter = NewDeadLetter::waiting(group, message, origin);
        let error = letter.error;
        let inserted = insert(letter, &self.statements().wait_behind, &mut *connection).await;
        let inserted = inserted.map_err(self.cannot("queue a message behind a dead letter"))?;
        self.record(connection, &inserted, &consumer_actor(group.as_str()), "queue", error).await
    }
}

async fn insert(
    letter: NewDeadLetter<'_>,
    statement: &Sql,
    connection: &mut SqliteConnection,
) -> sqlx::Result<Vec<DeadLetterId>> {
    let NewDeadLetter { group, message, origin, status, code, error, attempts, hold, retry_after, stored } = letter;
    let query = sqlx::query(statement.text()).bind(group.as_str());
    let rows = bind_message(query, message, message.id.to_string(), message.time.as_millis())
        .bind(origin.map(|position| i64::from(position.partition)))
        // An offset in the upper half of its range does not occur; it would be shown as unknown.
        .bind(origin.and_then(|position| i64::try_from(position.offset).ok()))
        .bind(status.as_str())
        .bind(code.as_str())
        .bind(error)
        .bind(i64::from(attempts))
        .bind(hold == Hold::Key)
        .bind(retry_after.map(millis))
        .bind(stored.fingerprint)
        .bind(stored.causes)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| row.try_get("id")).collect()
}
