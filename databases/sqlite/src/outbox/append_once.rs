//! Senders that retry: a message is enqueued once per id.

use async_trait::async_trait;
use landfall_core::{Appended, Fingerprint, IdempotentAppend, Message, MessageId, Result};
use landfall_sql_toolkit::{EnqueuedIds, append_batch_once, append_once};
use sqlx::SqliteConnection;

use crate::Sqlite;

#[async_trait]
impl IdempotentAppend for Sqlite {
    async fn append_once(&self, message: &Message, fingerprint: &Fingerprint) -> Result<Appended> {
        append_once(self, message, fingerprint).await
    }

    async fn append_batch_once(&self, sends: &[(Message, Option<Fingerprint>)]) -> Result<Vec<Appended>> {
        append_batch_once(self, sends).await
    }
}

impl EnqueuedIds for Sqlite {
    async fn insert_enqueued_id(
        &self,
        connection: &mut SqliteConnection,
        id: MessageId,
        fingerprint: &Fingerprint,
    ) -> Result<bool> {
        let inserted = sqlx::query(self.statements().insert_enqueued_id.text())
            .bind(id.to_string())
            .bind(&fingerprint[..])
            .execute(connection)
            .await
            .map_err(self.cannot("remember a message id"))?;
        Ok(inserted.rows_affected() == 1)
    }

    async fn enqueued_fingerprint(&self, connection: &mut SqliteConnection, id: MessageId) -> Result<Option<Vec<u8>>> {
        sqlx::query_scalar(self.statements().enqueued_fingerprint.text())
            .bind(id.to_string())
            .fetch_optional(connection)
            .await
            .map_err(self.cannot("look up a message id"))
    }
}
