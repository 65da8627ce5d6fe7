//! The outbox as senders use it: rows in the caller's own transaction.

use landfall_core::{Error, Message, OutboxWriter, Result};
use sqlx::MySqlConnection;

use crate::{MySql, moment};

/// Bytes of one statement, beyond which it carries fewer messages: far below what any server takes (16 MiB by default).
const STATEMENT_BYTES: usize = 1024 * 1024;
/// What the other columns and the protocol add to a message's own bytes, generously.
const OVERHEAD_BYTES: usize = 512;
/// Nobody allows less than this, so smaller statements are sent without asking.
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
                query = query
                    .bind(message.id.as_uuid())
                    .bind(message.topic.as_str())
                    .bind(message.key.as_ref().map(|key| key.as_str()))
                    .bind(message.sequence)
                    .bind(message.kind.as_str())
                    .bind(message.mode.as_str())
                    .bind(message.headers.to_json())
                    .bind(moment::text(message.time))
                    .bind(&message.payload[..]);
            }
            query.execute(&mut *connection).await.map_err(self.could_not("put messages into the outbox"))?;
            rest = after;
        }
        Ok(())
    }

    fn wake(&self) {
        self.inner.signals.wake();
    }
}

impl MySql {
    /// The server would close the connection in the middle of a statement that is too large, which looks like a network
    /// that fails, and would be tried again for ever.
    async fn refuse_beyond_packet(&self, connection: &mut MySqlConnection, bytes: usize) -> Result<()> {
        let allowed = self
            .inner
            .packet_bytes
            .get_or_try_init(async || {
                let allowed: i64 = sqlx::query_scalar("SELECT CAST(@@max_allowed_packet AS SIGNED)")
                    .fetch_one(connection)
                    .await
                    .map_err(self.could_not("say how large a statement may be"))?;
                Ok(usize::try_from(allowed).unwrap_or(usize::MAX))
            })
            .await?;
        if bytes <= *allowed {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a message of {bytes} bytes does not fit into a statement for MySQL at {}, which takes {allowed}: raise its \
             max_allowed_packet, or store large content elsewhere and send a reference to it",
            self.inner.place
        )))
    }
}

/// What a message takes in a statement, at most.
fn bytes(message: &Message) -> usize {
    let headers: usize = message.headers.iter().map(|(name, value)| 2 * (name.len() + value.len()) + 8).sum();
    message.payload.len() + headers + message.key.as_ref().map_or(0, |key| key.as_str().len()) + OVERHEAD_BYTES
}

/// How many of the first messages fit into one statement; at least one.
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
    fn a_statement_is_bounded_by_bytes_and_by_rows() {
        let messages = |count: usize, bytes: usize| -> Vec<Message> {
            (0..count).map(|_| Message::new(TopicName::new("t").unwrap(), vec![0; bytes])).collect()
        };
        assert_eq!(fitting(&messages(1000, 10)), 64);
        assert_eq!(fitting(&messages(1000, 100_000)), 10);
        assert_eq!(fitting(&messages(3, 5_000_000)), 1);
    }
}
