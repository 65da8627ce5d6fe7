//! The outbox for senders: rows in the caller's own transaction.

use landfall_core::{Error, Message, OutboxWriter, Result};
use landfall_sql_toolkit::bind_message;
use sqlx::MySqlConnection;

use crate::{MySql, timestamp};

/// The most bytes of a statement with several messages: far below what servers accept (16 MiB by default).
const STATEMENT_BYTES: usize = 1024 * 1024;
/// An upper bound of what the other columns and the protocol add to a message's own bytes.
const OVERHEAD_BYTES: usize = 512;
/// Every server accepts this much, so smaller statements are sent without asking for the limit.
const ALWAYS_ALLOWED: usize = 64 * 1024;

impl OutboxWriter for MySql {
    async fn enqueue(&self, connection: &mut MySqlConnection, messages: &[Message]) -> Result<()> {
        for message in messages {
            self.inner.limits.check(message)?;
        }
        let largest = messages.iter().map(bytes).max().unwrap_or_default();
        if largest > ALWAYS_ALLOWED {
            self.refuse_beyond_packet(connection, largest).await?;
        }
        // Three statements serve every number of messages, so that all of them stay prepared.
        let sql = self.statements();
        let mut rest = messages;
        while !rest.is_empty() {
            let (statement, rows) = match fitting(rest) {
                64.. => (&sql.enqueue_64, 64),
                8.. => (&sql.enqueue_8, 8),
                _ => (&sql.enqueue_1, 1),
            };
            let (batch, after) = rest.split_at(rows);
            let mut query = sqlx::query(statement.text());
            for message in batch {
                query = bind_message(query, message, message.id.as_uuid(), timestamp::text(message.time));
            }
            query.execute(&mut *connection).await.map_err(self.could_not("insert messages into the outbox"))?;
            rest = after;
        }
        Ok(())
    }

    fn wake(&self) {
        self.inner.signals.wake();
    }
}

impl MySql {
    /// Refuses a statement that is too large for the server. The server would close the connection in the middle of it,
    /// which looks like a network failure and would be retried for ever.
    async fn refuse_beyond_packet(&self, connection: &mut MySqlConnection, bytes: usize) -> Result<()> {
        let allowed = self
            .inner
            .packet_bytes
            .get_or_try_init(async || {
                let allowed: i64 = sqlx::query_scalar("SELECT CAST(@@max_allowed_packet AS SIGNED)")
                    .fetch_one(connection)
                    .await
                    .map_err(self.could_not("read max_allowed_packet"))?;
                Ok(usize::try_from(allowed).unwrap_or(usize::MAX))
            })
            .await?;
        if bytes <= *allowed {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a message of {bytes} bytes does not fit into a statement for MySQL at {}, which accepts {allowed}: raise \
             its max_allowed_packet, or store large content elsewhere and send a reference to it",
            self.inner.server.address()
        )))
    }
}

/// Returns an upper bound of a message's bytes in a statement.
fn bytes(message: &Message) -> usize {
    let headers: usize = message.headers.iter().map(|(name, value)| 2 * (name.len() + value.len()) + 8).sum();
    message.payload.len() + headers + message.key.as_ref().map_or(0, |key| key.as_str().len()) + OVERHEAD_BYTES
}

/// Returns how many of the first messages fit into one statement; at least one.
fn fitting(messages: &[Message]) -> usize {
    let mut total = 0;
    let fits = |message: &&Message| {
        total += bytes(message);
        total <= STATEMENT_BYTES
    };
    messages.iter().take(64).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use landfall_core::TopicName;

    use super::*;

    #[test]
    fn statement_is_limited_by_bytes_and_by_rows() {
        let messages = |count: usize, bytes: usize| -> Vec<Message> {
            (0..count).map(|_| Message::new(TopicName::new("t").unwrap(), vec![0; bytes])).collect()
        };
        assert_eq!(fitting(&messages(1000, 10)), 64);
        assert_eq!(fitting(&messages(1000, 100_000)), 10);
        assert_eq!(fitting(&messages(3, 5_000_000)), 1);
    }
}
