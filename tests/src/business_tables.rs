//! The services' own tables: orders and their effects. The checker compares the two.
//!
//! The producer writes `orders` in the transaction that enqueues the message. Its primary key makes a new writer wait
//! for an open transaction of a killed one. The handler writes `effects`, which has no unique constraint, so that a
//! duplicate effect is visible; `ordinal` is the order of the effects.

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Database, Error, ErrorKind, Message, MessageId, Result, Timestamp};

/// A committed business row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub key: String,
    pub sequence: i64,
    pub message_id: MessageId,
}

/// A database with a service's own tables next to Landfall's.
pub trait BusinessTables: Database {
    fn create_business_tables(&self) -> impl Future<Output = Result<()>> + Send;

    /// The sequence of the next order of `key`.
    fn next_sequence(&self, connection: &mut Self::Connection, key: &str) -> impl Future<Output = Result<i64>> + Send;

    fn record_order(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = Result<()>> + Send;

    fn record_effect(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The committed orders, per key in order.
    fn orders(&self) -> impl Future<Output = Result<Vec<Order>>> + Send;

    /// The committed effects, in the order in which they happened.
    fn effects(&self) -> impl Future<Output = Result<Vec<Order>>> + Send;

    /// The number of committed orders, and of committed effects.
    fn count_orders(&self) -> impl Future<Output = Result<i64>> + Send;
    fn count_effects(&self) -> impl Future<Output = Result<i64>> + Send;
}

/// The same statements in each dialect: row numbering, the quoted word `key`, and parameter markers.
macro_rules! business_tables {
    ($adapter:ty, $ordinal:literal, $key:literal, [$one:literal, $two:literal, $three:literal, $four:literal]) => {
        impl BusinessTables for $adapter {
            async fn create_business_tables(&self) -> Result<()> {
                for statement in [
                    concat!(
                        "CREATE TABLE orders (",
                        $key,
                        " varchar(200) NOT NULL, sequence bigint NOT NULL, message_id text NOT NULL, PRIMARY KEY (",
                        $key,
                        ", sequence))"
                    ),
                    concat!(
                        "CREATE TABLE effects (ordinal ",
                        $ordinal,
                        ", message_id text NOT NULL, ",
                        $key,
                        " varchar(200) NOT NULL, sequence bigint NOT NULL, applied_at bigint NOT NULL)"
                    ),
                ] {
                    sqlx::query(statement).execute(self.pool()).await.map_err(failed)?;
                }
                Ok(())
            }

            async fn next_sequence(&self, connection: &mut Self::Connection, key: &str) -> Result<i64> {
                let statement = concat!("SELECT coalesce(max(sequence), 0) + 1 FROM orders WHERE ", $key, " = ", $one);
                sqlx::query_scalar(statement).bind(key).fetch_one(connection).await.map_err(failed)
            }

            async fn record_order(&self, connection: &mut Self::Connection, message: &Message) -> Result<()> {
                let statement = concat!(
                    "INSERT INTO orders (",
                    $key,
                    ", sequence, message_id) VALUES (",
                    $one,
                    ", ",
                    $two,
                    ", ",
                    $three,
                    ")"
                );
                sqlx::query(statement)
                    .bind(message.key.as_ref().map(|key| key.as_str()))
                    .bind(message.sequence)
                    .bind(message.id.to_string())
                    .execute(connection)
                    .await
                    .map_err(failed)?;
                Ok(())
            }

            async fn record_effect(&self, connection: &mut Self::Connection, message: &Message) -> Result<()> {
                let statement = concat!(
                    "INSERT INTO effects (message_id, ",
                    $key,
                    ", sequence, applied_at) VALUES (",
                    $one,
                    ", ",
                    $two,
                    ", ",
                    $three,
                    ", ",
                    $four,
                    ")"
                );
                sqlx::query(statement)
                    .bind(message.id.to_string())
                    .bind(message.key.as_ref().map(|key| key.as_str()))
                    .bind(message.sequence)
                    .bind(Timestamp::now().as_millis())
                    .execute(connection)
                    .await
                    .map_err(failed)?;
                Ok(())
            }

            async fn orders(&self) -> Result<Vec<Order>> {
                let statement =
                    concat!("SELECT ", $key, ", sequence, message_id FROM orders ORDER BY ", $key, ", sequence");
                let rows = sqlx::query_as(statement).fetch_all(self.pool()).await.map_err(failed)?;
                rows.into_iter().map(order).collect()
            }

            async fn effects(&self) -> Result<Vec<Order>> {
                let statement = concat!("SELECT ", $key, ", sequence, message_id FROM effects ORDER BY ordinal");
                let rows = sqlx::query_as(statement).fetch_all(self.pool()).await.map_err(failed)?;
                rows.into_iter().map(order).collect()
            }

            async fn count_orders(&self) -> Result<i64> {
                sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(self.pool()).await.map_err(failed)
            }

            async fn count_effects(&self) -> Result<i64> {
                sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(self.pool()).await.map_err(failed)
            }
        }
    };
}

business_tables!(Sqlite, "INTEGER PRIMARY KEY AUTOINCREMENT", "key", ["$1", "$2", "$3", "$4"]);
business_tables!(Postgres, "bigint GENERATED ALWAYS AS IDENTITY", "key", ["$1", "$2", "$3", "$4"]);
business_tables!(MySql, "bigint NOT NULL AUTO_INCREMENT PRIMARY KEY", "`key`", ["?", "?", "?", "?"]);

fn order((key, sequence, message_id): (String, i64, String)) -> Result<Order> {
    Ok(Order { key, sequence, message_id: message_id.parse()? })
}

fn failed(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "a statement on the service's own tables failed").with_source(error)
}
