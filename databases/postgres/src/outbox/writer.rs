//! The outbox for senders: rows in the caller's own transaction.

use landfall_core::{Database, Message, OutboxWriter, Result};
use landfall_sql_toolkit::bind_message;
use sqlx::PgConnection;

use crate::Postgres;
use crate::timestamp::TimestampTz;

/// Rows of one statement. A protocol message is limited to 1 GiB, which a few hundred of the largest messages fill.
const ROWS_PER_STATEMENT: usize = 500;

impl OutboxWriter for Postgres {
    async fn enqueue(&self, connection: &mut PgConnection, messages: &[Message]) -> Result<()> {
        for message in messages {
            self.inner.limits.check(message)?;
        }
        if let [message] = messages {
            return self.insert_one(connection, message).await;
        }
        for chunk in messages.chunks(ROWS_PER_STATEMENT) {
            self.insert(connection, chunk).await?;
        }
        Ok(())
    }

    async fn enqueue_and_commit(&self, mut transaction: Self::Transaction, messages: &[Message]) -> Result<()> {
        if messages.is_empty() {
            return self.commit(transaction).await;
        }
        self.enqueue(&mut transaction, messages).await?;
        // The insert succeeded, so the transaction has no failed statement and the server cannot answer with ROLLBACK.
        transaction.commit().await.map_err(self.could_not_commit())
    }

    fn wake(&self) {
        self.inner.signals.wake();
    }
}

impl Postgres {
    async fn insert_one(&self, connection: &mut PgConnection, message: &Message) -> Result<()> {
        let query = self.query(&self.statements().enqueue_one);
        bind_message(query, message, message.id.as_uuid(), TimestampTz(message.time))
            .execute(connection)
            .await
            .map_err(self.could_not("insert a message into the outbox"))?;
        Ok(())
    }

    async fn insert(&self, connection: &mut PgConnection, messages: &[Message]) -> Result<()> {
        fn column<'a, T>(messages: &'a [Message], value: impl Fn(&'a Message) -> T) -> Vec<T> {
            messages.iter().map(value).collect()
        }
        self.query(&self.statements().enqueue)
            .bind(column(messages, |message| message.id.as_uuid()))
            .bind(column(messages, |message| message.topic.as_str()))
            .bind(column(messages, |message| message.key.as_ref().map(|key| key.as_str())))
            .bind(column(messages, |message| message.sequence))
            .bind(column(messages, |message| message.kind.as_str()))
            .bind(column(messages, |message| message.mode.as_str()))
            .bind(column(messages, |message| message.headers.to_json()))
            .bind(column(messages, |message| &message.payload[..]))
            .bind(column(messages, |message| TimestampTz(message.time)))
            .execute(connection)
            .await
            .map_err(self.could_not("insert messages into the outbox"))?;
        Ok(())
    }
}
