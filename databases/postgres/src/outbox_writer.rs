//! The outbox as senders use it: rows in the caller's own transaction.

use landfall_core::{Database, Message, OutboxWriter, Result};
use sqlx::PgConnection;

use crate::Postgres;
use crate::moment::Moment;

/// Rows of one statement. The protocol takes a gigabyte at a time, which a few hundred of the largest messages fill.
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
        // The statement before it was answered, so the transaction has not failed, and this cannot be a rollback.
        transaction.commit().await.map_err(self.could_not_commit())
    }

    fn wake(&self) {
        self.inner.signals.wake();
    }
}

impl Postgres {
    async fn insert_one(&self, connection: &mut PgConnection, message: &Message) -> Result<()> {
        self.query(&self.statements().enqueue_one)
            .bind(message.id.as_uuid())
            .bind(message.topic.as_str())
            .bind(message.key.as_ref().map(|key| key.as_str()))
            .bind(message.sequence)
            .bind(message.kind.as_str())
            .bind(message.mode.as_str())
            .bind(message.headers.to_json())
            .bind(&message.payload[..])
            .bind(Moment(message.time))
            .execute(connection)
            .await
            .map_err(self.could_not("put a message into the outbox"))?;
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
            .bind(column(messages, |message| Moment(message.time)))
            .execute(connection)
            .await
            .map_err(self.could_not("put messages into the outbox"))?;
        Ok(())
    }
}
