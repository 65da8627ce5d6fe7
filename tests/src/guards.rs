//! What a service's own tables can know of what was done: a bill for each message, and how far each key has come.

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Database, Message};

pub trait Guards: Database {
    /// What the constraint on `bills` is called in an error.
    const ONE_BILL: &'static str;

    fn create_guards(&self) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes the bill of `message`; violates [`Guards::ONE_BILL`] if there is one.
    fn bill(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The same, and no error if there is one; answers with the rows it wrote.
    fn bill_once(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// The key of `message` goes on from the number before it to its own; answers with the rows it changed.
    fn advance(
        &self,
        connection: &mut Self::Connection,
        message: &Message,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;
}

/// The same statements in each dialect.
macro_rules! guards {
    ($adapter:ty, $one_bill:literal, $insert:literal, $ignore:literal, [$one:literal, $two:literal, $three:literal]) => {
        impl Guards for $adapter {
            const ONE_BILL: &'static str = $one_bill;

            async fn create_guards(&self) -> sqlx::Result<()> {
                for statement in [
                    "CREATE TABLE bills (number varchar(36) NOT NULL, CONSTRAINT bills_number UNIQUE (number))",
                    "CREATE TABLE tallies (customer varchar(200) PRIMARY KEY, applied bigint NOT NULL)",
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
                let begin = concat!($insert, " INTO tallies (customer, applied) VALUES (", $one, ", 0)", $ignore);
                sqlx::query(begin).bind(key).execute(&mut *connection).await?;
                let update = concat!(
                    "UPDATE tallies SET applied = ",
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
