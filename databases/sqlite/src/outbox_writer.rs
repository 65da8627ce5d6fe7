//! Writing to the outbox inside the caller's own transaction.

use landfall_core::{Message, OutboxWriter, Result};
use sqlx::SqliteConnection;

use crate::Sqlite;

impl OutboxWriter for Sqlite {
    async fn enqueue(&self, connection: &mut SqliteConnection, messages: &[Message]) -> Result<()> {
        for message in messages {
            self.inner.limits.check(message)?;
        }
        // Three statements serve every number of messages, so that all of them stay prepared.
        let sql = self.statements();
        let mut rest = messages;
        while !rest.is_empty() {
            let (statement, rows) = match rest.len() {
                64.. => (&sql.enqueue_64, 64),
                8.. => (&sql.enqueue_8, 8),
                _ => (&sql.enqueue_1, 1),
            };
            let (batch, after) = rest.split_at(rows);
            let mut query = sqlx::query(statement.clone());
            for message in batch {
                query = query
                    .bind(message.id.to_string())
                    .bind(message.topic.as_str())
                    .bind(message.key.as_ref().map(|key| key.as_str()))
                    .bind(message.sequence)
                    .bind(message.kind.as_str())
                    .bind(message.mode.as_str())
                    .bind(message.headers.to_json())
                    .bind(message.time.as_millis())
                    .bind(&message.payload[..]);
            }
            query.execute(&mut *connection).await.map_err(self.cannot("enqueue messages"))?;
            rest = after;
        }
        Ok(())
    }

    fn wake(&self) {
        self.inner.signals.wake();
    }
}
