//! The outbox for senders: rows in the caller's own transaction.

use landfall_core::{Message, OutboxWriter, Result};
use landfall_sql_toolkit::bind_message;
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
            let mut query = sqlx::query(statement.text());
            for message in batch {
                query = bind_message(query, message, message.id.to_string(), message.time.as_millis());
            }
            query.execute(&mut *connection).await.map_err(self.cannot("insert messages into the outbox"))?;
            rest = after;
        }
        Ok(())
    }

    fn wake(&self) {
        self.inner.signals.wake();
    }
}
