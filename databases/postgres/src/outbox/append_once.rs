//! Senders that retry: a message is enqueued once per id.

use std::collections::HashSet;

use async_trait::async_trait;
use landfall_core::{Appended, Fingerprint, IdempotentAppend, Message, MessageId, Result};
use landfall_sql_toolkit::{EnqueuedIds, append_batch_once, append_once};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::Postgres;

#[async_trait]
impl IdempotentAppend for Postgres {
    async fn append_once(&self, message: &Message, fingerprint: &Fingerprint) -> Result<Appended> {
        append_once(self, message, fingerprint).await
    }

    async fn append_batch_once(&self, sends: &[(Message, Option<Fingerprint>)]) -> Result<Vec<Appended>> {
        append_batch_once(self, sends).await
    }
}

impl EnqueuedIds for Postgres {
    async fn insert_enqueued_id(
        &self,
        connection: &mut PgConnection,
        id: MessageId,
        fingerprint: &Fingerprint,
    ) -> Result<bool> {
        let inserted = self
            .query(&self.statements().insert_enqueued_id)
            .bind(id.as_uuid())
            .bind(&fingerprint[..])
            .execute(connection)
            .await
            .map_err(self.could_not("remember a message id"))?;
        Ok(inserted.rows_affected() == 1)
    }

    async fn insert_enqueued_ids(
        &self,
        connection: &mut PgConnection,
        ids: &[(MessageId, &Fingerprint)],
    ) -> Result<Vec<bool>> {
        let inserted: HashSet<Uuid> = self
            .query_scalar(&self.statements().insert_enqueued_ids)
            .bind(ids.iter().map(|(id, _)| id.as_uuid()).collect::<Vec<_>>())
            .bind(ids.iter().map(|(_, fingerprint)| &fingerprint[..]).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(self.could_not("remember message ids"))?
            .into_iter()
            .collect();
        Ok(ids.iter().map(|(id, _)| inserted.contains(&id.as_uuid())).collect())
    }

    async fn enqueued_fingerprint(&self, connection: &mut PgConnection, id: MessageId) -> Result<Option<Vec<u8>>> {
        self.query_scalar(&self.statements().enqueued_fingerprint)
            .bind(id.as_uuid())
            .fetch_optional(connection)
            .await
            .map_err(self.could_not("look up a message id"))
    }
}
