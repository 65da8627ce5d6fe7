//! Idempotency by the service's own tables: a bill per message, and the last applied sequence of each key.

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Database, Message};

pub trait Guards: Database {
    /// The name of the constraint on `bills` in errors.
    const ONE_BILL: &'static str;

    fn create_guards(&self) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Inserts the bill of `message`; violates [`Guards::ONE_BILL`] if it exists.
    fn bill(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Inserts the bill of `message` unless it exists. Returns the number of inserted rows.
    fn bill_once(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Advances the key of `message` from the previous sequence to its own. Returns the number of changed rows.
    fn advance(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;
}

/// The same statements in each dialect.
macro_rules! guards {
    (
        $adapter:ty,
        $one_bill:literal,
        $insert:literal,
        $ignore:literal,
        [$one:literal, $two:literal, $three:literal]
    ) => {
        impl Guards for $adapter {
            const ONE_BILL: &'static str = $one_bill;

            async fn create_guards(&self) -> sqlx::Result<()> {
                for statement in [
                    "CREATE TABLE bills (number varchar(36) NOT NULL, CONSTRAINT bills_number UNIQUE (number))",
                    "CREATE TABLE applied_sequences (customer varchar(200) PRIMARY KEY, applied bigint NOT NULL)",
                ] {
                    sqlx::query(statement).execute(self.pool()).await?;
                }
                Ok(())
            }

            async fn bill(&self, connection: &mut Self::Connection, message: &Message) -> sqlx::Result<()> {
                let statement = concat!("INSERT INTO bills (number) VALUES (", $one, ")");
                sqlx::query(statement).bind(message.id.to_string()).execute(connection).await?;
                Ok(())
            }

            async fn bill_once(&self, connection: &mut Self::Connection, message: &Message) -> sqlx::Result<u64> {
                let statement = concat!($insert, " INTO bills (number) VALUES (", $one, ")", $ignore);
                Ok(sqlx::query(statement).bind(message.id.to_string()).execute(connection).await?.rows_affected())
            }

            async fn advance(&self, connection: &mut Self::Connection, message: &Message) -> sqlx::Result<u64> {
                let key = message.key.as_ref().map(|key| key.as_str());
                let begin =
                    concat!($insert, " INTO applied_sequences (customer, applied) VALUES (", $one, ", 0)", $ignore);
                sqlx::query(begin).bind(key).execute(&mut *connection).await?;
                let update = concat!(
                    "UPDATE applied_sequences SET applied = ",
                    $one,
                    " WHERE customer = ",
                    $two,
                    " AND applied = ",
                    $three
                );
                let number = message.sequence.unwrap_or_default();
                let query = sqlx::query(update).bind(number).bind(key).bind(number - 1);
                Ok(query.execute(connection).await?.rows_affected())
            }
        }
    };
}

guards!(Sqlite, "bills.number", "INSERT", " ON CONFLICT DO NOTHING", ["$1", "$2", "$3"]);
guards!(Postgres, "bills_number", "INSERT", " ON CONFLICT DO NOTHING", ["$1", "$2", "$3"]);
guards!(MySql, "bills_number", "INSERT IGNORE", "", ["?", "?", "?"]);
