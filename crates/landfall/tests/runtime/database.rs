//! The three databases with a table of effects, for the tests of the consumer.

use std::fmt::Write;

use landfall::{
    Constraints, DeadLetters, Housekeeping, InboxView, Leases, Message, OutboxQueue, OutboxWriter, Rehearsals, Schema,
    Sequences,
};
use landfall_mysql::MySql;
use landfall_postgres::Postgres;
use landfall_sqlite::Sqlite;
use landfall_testkit::servers::{fresh_mysql_database, fresh_postgres_database};
use sqlx::{AssertSqlSafe, Executor, MySqlConnection, PgConnection, SqliteConnection};

/// One effect: the id, key and sequence number of its message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Effect {
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) sequence: Option<i64>,
}

impl From<&Message> for Effect {
    fn from(message: &Message) -> Self {
        let key = message.key.as_ref().map(ToString::to_string);
        Self { id: message.id.to_string(), key, sequence: message.sequence }
    }
}

/// A database with a table `effects` that has no constraint, so that a duplicate effect shows.
pub(crate) trait TestDatabase:
    InboxView
    + Constraints
    + Sequences
    + OutboxWriter
    + OutboxQueue
    + Leases
    + DeadLetters
    + Rehearsals
    + Housekeeping
    + Schema
{
    /// Whether an SQL error aborts the transaction.
    const ERRORS_BREAK: bool;

    /// A new, migrated database; `None` if no server is available, which the testkit reports.
    fn fresh() -> impl Future<Output = Option<Self>> + Send;

    /// Creates the tables in an empty database.
    fn prepare(&self) -> impl Future<Output = ()> + Send;

    fn record(connection: &mut Self::Connection, message: &Message) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Records all messages with one statement.
    fn record_all(
        connection: &mut Self::Connection,
        messages: &[&Message],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Binds `texts` to the question marks of `statement` and returns the number of changed rows.
    fn execute(
        connection: &mut Self::Connection,
        statement: &str,
        texts: &[&str],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Runs a statement that the database refuses.
    fn failing_statement(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn effects(&self) -> impl Future<Output = Vec<Effect>> + Send;

    /// Runs any statement.
    fn run(&self, statement: &str) -> impl Future<Output = ()> + Send;

    fn number(&self, select: &str) -> impl Future<Output = i64> + Send;
}

const TABLE: &str =
    "CREATE TABLE effects (n {serial}, id VARCHAR(36) NOT NULL, business_key VARCHAR(100), sequence BIGINT)";
const INSERT: &str = "INSERT INTO effects (id, business_key, sequence) VALUES ";
const SELECT: &str = "SELECT id, business_key, sequence FROM effects ORDER BY n";

macro_rules! test_database {
    (
        $database:ty, $connection:ty, $serial:literal, $errors_break:literal, $numbered:literal, $parameters:expr,
        $open:expr
    ) => {
        impl TestDatabase for $database {
            const ERRORS_BREAK: bool = $errors_break;

            async fn fresh() -> Option<Self> {
                let database: Self = $open.await?;
                database.prepare().await;
                Some(database)
            }

            async fn prepare(&self) {
                self.migrate().await.unwrap();
                self.run(&TABLE.replace("{serial}", $serial)).await;
            }

            async fn record(connection: &mut $connection, message: &Message) -> sqlx::Result<()> {
                Self::record_all(connection, &[message]).await
            }

            async fn record_all(connection: &mut $connection, messages: &[&Message]) -> sqlx::Result<()> {
                let mut insert = String::from(INSERT);
                let parameters: fn(usize) -> String = $parameters;
                for row in 0..messages.len() {
                    let comma = if row == 0 { "" } else { ", " };
                    write!(insert, "{comma}({})", parameters(3 * row + 1)).unwrap();
                }
                let mut query = sqlx::query(AssertSqlSafe(insert));
                for Effect { id, key, sequence } in messages.iter().map(|message| Effect::from(*message)) {
                    query = query.bind(id).bind(key).bind(sequence);
                }
                query.execute(connection).await?;
                Ok(())
            }

            async fn execute(connection: &mut $connection, statement: &str, texts: &[&str]) -> sqlx::Result<u64> {
                let statement = if $numbered {
                    let pieces = statement.split('?').enumerate();
                    pieces.map(|(n, piece)| if n == 0 { piece.into() } else { format!("${n}{piece}") }).collect()
                } else {
                    statement.to_owned()
                };
                let mut query = sqlx::query(AssertSqlSafe(statement));
                for text in texts {
                    query = query.bind(text.to_string());
                }
                Ok(query.execute(connection).await?.rows_affected())
            }

            async fn failing_statement(connection: &mut $connection) -> sqlx::Result<()> {
                connection.execute("INSERT INTO effects (id) VALUES (NULL)").await?;
                Ok(())
            }

            async fn effects(&self) -> Vec<Effect> {
                let rows: Vec<(String, Option<String>, Option<i64>)> =
                    sqlx::query_as(SELECT).fetch_all(self.pool()).await.unwrap();
                rows.into_iter().map(|(id, key, sequence)| Effect { id, key, sequence }).collect()
            }

            async fn run(&self, statement: &str) {
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(self.pool()).await.unwrap();
            }

            async fn number(&self, select: &str) -> i64 {
                sqlx::query_scalar(AssertSqlSafe(select)).fetch_one(self.pool()).await.unwrap()
            }
        }
    };
}

fn questions(_: usize) -> String {
    "?, ?, ?".into()
}

test_database!(Sqlite, SqliteConnection, "INTEGER PRIMARY KEY", false, false, questions, async {
    let folder = tempfile::tempdir().unwrap().keep();
    Some(Sqlite::open(folder.join("test.db").to_str().unwrap(), Default::default()).await.unwrap())
});
test_database!(
    Postgres,
    PgConnection,
    "bigint GENERATED ALWAYS AS IDENTITY",
    true,
    true,
    |first| format!("${first}, ${}, ${}", first + 1, first + 2),
    async { Some(Postgres::connect(&fresh_postgres_database().await?, Default::default()).await.unwrap()) }
);
test_database!(MySql, MySqlConnection, "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY", false, false, questions, async {
    Some(MySql::connect(&fresh_mysql_database().await?, Default::default()).await.unwrap())
});
