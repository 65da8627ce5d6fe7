//! Senders that retry: a message is enqueued once per id.

use async_trait::async_trait;
use landfall_core::{Appended, Fingerprint, IdempotentAppend, Message, MessageId, Result};
use landfall_sql_toolkit::{EnqueuedIds, append_batch_once, append_once};
use sqlx::MySqlConnection;

use crate::MySql;
use crate::connection::retry::retry_deadlocks;

#[async_trait]
impl IdempotentAppend for MySql {
    async fn append_once(&self, message: &Message, fingerprint: &Fingerprint) -> Result<Appended> {
        retry_deadlocks(|| append_once(self, message, fingerprint)).await
    }

    async fn append_batch_once(&self, sends: &[(Message, Option<Fingerprint>)]) -> Result<Vec<Appended>> {
        retry_deadlocks(|| append_batch_once(self, sends)).await
    }
}

impl EnqueuedIds for MySql {
    async fn insert_enqueued_id(
        &self,
        connection: &mut MySqlConnection,
        id: MessageId,
        fingerprint: &Fingerprint,
    ) -> Result<bool> {
        let inserted = sqlx::query(self.statements().insert_enqueued_id.text())
            .bind(id.as_uuid())
            .bind(&fingerprint[..])
            .execute(connection)
            .await
            .map_err(self.could_not("remember a message id"))?;
        Ok(inserted.rows_affected() == 1)
    }

    async fn enqueued_fingerprint(&self, connection: &mut MySqlConnection, id: MessageId) -> Result<Option<Vec<u8>>> {
        sqlx::query_scalar(self.statements().enqueued_fingerprint.text())
            .bind(id.as_uuid())
            .fetch_optional(connection)
            .await
            .map_err(self.could_not("look up a message id"))
    }
}
