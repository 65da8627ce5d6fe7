//! The consumer's side: the inbox row, the handler's writes and the dead letters in one transaction.
//!
//! The transaction holds SQLite's write lock, so two copies of a message, or live traffic and a redrive, cannot meet
//! in the middle: the second sees what the first committed.

use std::time::Duration;

use landfall_core::{
    Admission, Arrival, BatchAdmission, Database, DeadLetterId, DeadLetterStatus, Error, ErrorCode, ErrorKind,
    GroupName, Hold, Inbox, Message, Origin, Parking, RedriveItem, Result, Setback,
};
use sqlx::{SqlStr, SqliteConnection};

use crate::outbox_queue::millis;
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
            sqlx::query_scalar(self.statements().admit.clone()).bind(group.as_str()).bind(message.id.to_string())
        } else {
            sqlx::query_scalar(self.statements().is_held.clone()).bind(group.as_str())
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

    async fn admit_batch(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        batch: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        let ids: Vec<String> = BatchAdmission::ids(batch).iter().map(ToString::to_string).collect();
        let inserted: Vec<String> = sqlx::query_scalar(self.statements().admit_batch.clone())
            .bind(group.as_str())
            .bind(serde_json::Value::from(ids).to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("admit a batch"))?;
        let inserted = inserted.iter().map(|id| id.parse()).collect::<Result<Vec<_>>>()?;
        let admission = BatchAdmission::new(batch, inserted);
        let names: Vec<_> = admission.keys().into_iter().map(|(topic, key)| vec![topic, key]).collect();
        let held: Vec<(String, String)> = sqlx::query_as(self.statements().are_held.clone())
            .bind(group.as_str())
            .bind(serde_json::Value::from(names).to_string())
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("look for held keys"))?;
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
        let Parking { attempts, failure, hold, again } = parking;
        let (status, action) = parked_or_delayed(again);
        let (code, error) = (&failure.code, failure.error.as_str());
        let letter = NewDeadLetter { group, message, origin, status, code, error, attempts, hold, again };
        let ids = letter
            .insert(self.statements().park.clone(), &mut *connection)
            .await
            .map_err(self.cannot("park a message"))?;
        let id =
            ids.first().copied().ok_or_else(|| Error::new(ErrorKind::Internal, "parking answered without an id"))?;
        self.hold_keys(&mut *connection, &[id]).await?;
        self.record(connection, &[id], &consumer(group.as_str()), action, &failure.to_string()).await?;
        Ok(id)
    }

    async fn next_redriven(
        &self,
        connection: &mut SqliteConnection,
        group: &GroupName,
        resting: &[DeadLetterId],
    ) -> Result<Option<RedriveItem>> {
        // What is delayed belongs to live traffic and comes first: a redrive of many must not keep it waiting.
        for statement in [&self.statements().next_delayed, &self.statements().next_redriven] {
            let found = sqlx::query(statement.clone())
                .bind(group.as_str())
                .bind(dead_letter::id_list(resting))
                .fetch_optional(&mut *connection)
                .await
                .map_err(self.cannot("look for a redriven message"))?;
            if let Some(found) = found {
                return row::redrive_item(&found).map(Some);
            }
        }
        Ok(None)
    }

    async fn complete_redriven(&self, connection: &mut SqliteConnection, item: &RedriveItem) -> Result<()> {
        let groups: Vec<String> = sqlx::query_scalar(self.statements().complete_redriven.clone())
            .bind(item.id)
            .fetch_all(&mut *connection)
            .await
            .map_err(self.cannot("complete a redriven message"))?;
        let Some(group) = groups.first() else {
            // An error, so that the caller's transaction, with a second effect in it, is rolled back.
            let sentence = format!("dead letter {} is no longer to be handled; its effect must not happen", item.id);
            return Err(Error::new(ErrorKind::Conflict, sentence));
        };
        self.record(&mut *connection, &[item.id], &consumer(group), "effect", "").await?;
        self.release_keys(connection, &[item.id]).await
    }

    async fn park_redriven(
        &self,
        connection: &mut SqliteConnection,
        item: &RedriveItem,
        setback: Setback<'_>,
    ) -> Result<bool> {
        let Setback { attempts, failure, hold, again } = setback;
        let (_, action) = parked_or_delayed(again);
        let groups: Vec<String> = sqlx::query_scalar(self.statements().park_redriven.clone())
            .bind(item.id)
            .bind(failure.code.as_str())
            .bind(&failure.error)
            .bind(i64::from(attempts))
            .bind(again.map(millis))
            .bind(hold == Hold::Key)
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
        self.record(connection, &[item.id], &consumer(group), action, &failure.to_string()).await?;
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
        let letter = NewDeadLetter {
            group,
            message,
            origin,
            status: DeadLetterStatus::Waiting,
            code: &ErrorCode::PREDECESSOR,
            error: "an earlier message of the same key is a dead letter",
            attempts: 0,
            hold: Hold::Key,
            again: None,
        };
        letter
            .insert(self.statements().wait_behind.clone(), connection)
            .await
            .map_err(self.cannot("queue a message behind its key"))?;
        Ok(())
    }
}

/// Who the audit trail says it was.
fn consumer(group: &str) -> String {
    format!("consumer:{group}")
}

/// What a letter is that is to be tried again after this time or never, and what the audit trail calls it.
fn parked_or_delayed(again: Option<Duration>) -> (DeadLetterStatus, &'static str) {
    if again.is_some() { (DeadLetterStatus::Delayed, "delay") } else { (DeadLetterStatus::Parked, "park") }
}

struct NewDeadLetter<'a> {
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

impl NewDeadLetter<'_> {
    async fn insert(
        self,
        statement: SqlStr,
        connection: &mut <Sqlite as Database>::Connection,
    ) -> Result<Vec<DeadLetterId>, sqlx::Error> {
        let message = self.message;
        sqlx::query_scalar(statement)
            .bind(self.group.as_str())
            .bind(message.id.to_string())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(message.sequence)
            .bind(message.kind.as_str())
            .bind(message.mode.as_str())
            .bind(message.headers.to_json())
            .bind(message.time.as_millis())
            .bind(&message.payload[..])
            .bind(self.origin.map(|position| i64::from(position.partition)))
            // An offset past half of its range has never been seen; it would be shown as unknown.
            .bind(self.origin.and_then(|position| i64::try_from(position.offset).ok()))
            .bind(self.status.as_str())
            .bind(self.code.as_str())
            .bind(self.error)
            .bind(i64::from(self.attempts))
            .bind(self.hold == Hold::Key)
            .bind(self.again.map(millis))
            .fetch_all(connection)
            .await
    }
}
