//! The services' own tables in a soak, in SQL of all databases. The check compares them.
//!
//! A writer locks the row of an account and numbers its messages. `soak_sent` is written in the transaction that
//! enqueues, `soak_effect` in the transaction that handles. Neither has a unique constraint, so that duplicates are
//! visible.

use landfall::mysql::MySql;
use landfall::postgres::Postgres;
use landfall::sqlite::Sqlite;
use landfall::{Database, Error, ErrorKind, MessageId, Result};
use sqlx::AssertSqlSafe;

use super::process_config::account;

/// A sent message or an effect: the operation's token, the account, and the number within the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub token: MessageId,
    pub account: String,
    pub number: i64,
}

pub trait Ledger: Database {
    fn create_ledger(&self, accounts: u32) -> impl Future<Output = Result<()>> + Send;

    /// Inserts an unrelated row: the transaction gets its transaction id early, however late it writes the rest.
    fn touch(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<()>> + Send;

    /// Locks the account until the transaction ends, and assigns the next `numbers` numbers. Returns the last one.
    fn lock(
        &self,
        connection: &mut Self::Connection,
        account: &str,
        numbers: i64,
    ) -> impl Future<Output = Result<i64>> + Send;

    fn record_sent(&self, connection: &mut Self::Connection, sent: &Entry) -> impl Future<Output = Result<()>> + Send;

    /// How often an operation was committed. Reliable only for the holder of its account's lock.
    fn count_sent(
        &self,
        connection: &mut Self::Connection,
        token: MessageId,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Enqueues with plain SQL, as other languages do: into `payload_text` if `is_text`, else into `payload`.
    fn insert_with_plain_sql(
        &self,
        connection: &mut Self::Connection,
        topic: &str,
        key: &str,
        payload: &str,
        is_text: bool,
    ) -> impl Future<Output = Result<()>> + Send;

    fn apply(&self, connection: &mut Self::Connection, effect: &Entry) -> impl Future<Output = Result<()>> + Send;

    fn sent(&self) -> impl Future<Output = Result<Vec<Entry>>> + Send;

    /// The effects in the order in which they happened.
    fn applied(&self) -> impl Future<Output = Result<Vec<Entry>>> + Send;

    fn sent_count(&self) -> impl Future<Output = Result<i64>> + Send;
    fn applied_count(&self) -> impl Future<Output = Result<i64>> + Send;
}

macro_rules! ledger {
    ($adapter:ty, $ordinal:literal, $key:literal, [$one:literal, $two:literal, $three:literal]) => {
        impl Ledger for $adapter {
            async fn create_ledger(&self, accounts: u32) -> Result<()> {
                for statement in [
                    "CREATE TABLE soak_account (name varchar(64) PRIMARY KEY, numbered bigint NOT NULL)",
                    "CREATE TABLE soak_scratch (n bigint NOT NULL)",
                    "CREATE TABLE soak_sent (token varchar(64) NOT NULL, account varchar(64) NOT NULL, \
                     number bigint NOT NULL)",
                    "CREATE INDEX soak_sent_token ON soak_sent (token)",
                    concat!(
                        "CREATE TABLE soak_effect (ordinal ",
                        $ordinal,
                        ", token varchar(64) NOT NULL, account varchar(64) NOT NULL, number bigint NOT NULL)"
                    ),
                ] {
                    sqlx::query(statement).execute(self.pool()).await.map_err(failed)?;
                }
                for number in 0..accounts {
                    let statement = concat!("INSERT INTO soak_account (name, numbered) VALUES (", $one, ", 0)");
                    sqlx::query(statement).bind(account(number)).execute(self.pool()).await.map_err(failed)?;
                }
                Ok(())
            }

            async fn touch(&self, connection: &mut Self::Connection) -> Result<()> {
                let statement = "INSERT INTO soak_scratch (n) VALUES (1)";
                sqlx::query(statement).execute(connection).await.map_err(failed)?;
                Ok(())
            }

            async fn lock(&self, connection: &mut Self::Connection, account: &str, numbers: i64) -> Result<i64> {
                let statement = concat!("UPDATE soak_account SET numbered = numbered + ", $one, " WHERE name = ", $two);
                let update = sqlx::query(statement).bind(numbers).bind(account);
                update.execute(&mut *connection).await.map_err(failed)?;
                let statement = concat!("SELECT numbered FROM soak_account WHERE name = ", $one);
                sqlx::query_scalar(statement).bind(account).fetch_one(connection).await.map_err(failed)
            }

            async fn record_sent(&self, connection: &mut Self::Connection, sent: &Entry) -> Result<()> {
                let statement = concat!(
                    "INSERT INTO soak_sent (token, account, number) VALUES (",
                    $one,
                    ", ",
                    $two,
                    ", ",
                    $three,
                    ")"
                );
                let insert = sqlx::query(statement).bind(sent.token.to_string()).bind(&sent.account).bind(sent.number);
                insert.execute(connection).await.map_err(failed)?;
                Ok(())
            }

            async fn count_sent(&self, connection: &mut Self::Connection, token: MessageId) -> Result<i64> {
                let statement = concat!("SELECT count(*) FROM soak_sent WHERE token = ", $one);
                sqlx::query_scalar(statement).bind(token.to_string()).fetch_one(connection).await.map_err(failed)
            }

            async fn insert_with_plain_sql(
                &self,
                connection: &mut Self::Connection,
                topic: &str,
                key: &str,
                payload: &str,
                is_text: bool,
            ) -> Result<()> {
                let values = concat!(" VALUES (", $one, ", ", $two, ", ", $three, ")");
                let columns = concat!("INSERT INTO landfall_outbox (topic, ", $key, ", payload");
                let suffix = if is_text { "_text)" } else { ")" };
                let insert = sqlx::query(AssertSqlSafe(format!("{columns}{suffix}{values}"))).bind(topic).bind(key);
                let insert = if is_text { insert.bind(payload) } else { insert.bind(payload.as_bytes()) };
                insert.execute(connection).await.map_err(failed)?;
                Ok(())
            }

            async fn apply(&self, connection: &mut Self::Connection, effect: &Entry) -> Result<()> {
                let statement = concat!(
                    "INSERT INTO soak_effect (token, account, number) VALUES (",
                    $one,
                    ", ",
                    $two,
                    ", ",
                    $three,
                    ")"
                );
                let insert =
                    sqlx::query(statement).bind(effect.token.to_string()).bind(&effect.account).bind(effect.number);
                insert.execute(connection).await.map_err(failed)?;
                Ok(())
            }

            async fn sent(&self) -> Result<Vec<Entry>> {
                let statement = "SELECT token, account, number FROM soak_sent ORDER BY account, number";
                let rows = sqlx::query_as(statement).fetch_all(self.pool()).await.map_err(failed)?;
                rows.into_iter().map(entry).collect()
            }

            async fn applied(&self) -> Result<Vec<Entry>> {
                let statement = "SELECT token, account, number FROM soak_effect ORDER BY ordinal";
                let rows = sqlx::query_as(statement).fetch_all(self.pool()).await.map_err(failed)?;
                rows.into_iter().map(entry).collect()
            }

            async fn sent_count(&self) -> Result<i64> {
                sqlx::query_scalar("SELECT count(*) FROM soak_sent").fetch_one(self.pool()).await.map_err(failed)
            }

            async fn applied_count(&self) -> Result<i64> {
                sqlx::query_scalar("SELECT count(*) FROM soak_effect").fetch_one(self.pool()).await.map_err(failed)
            }
        }
    };
}

ledger!(Sqlite, "INTEGER PRIMARY KEY AUTOINCREMENT", "key", ["?1", "?2", "?3"]);
ledger!(Postgres, "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "key", ["$1", "$2", "$3"]);
ledger!(MySql, "bigint NOT NULL AUTO_INCREMENT PRIMARY KEY", "`key`", ["?", "?", "?"]);

fn entry((token, account, number): (String, String, i64)) -> Result<Entry> {
    Ok(Entry { token: token.parse()?, account, number })
}

/// After any error of a statement the transaction is rolled back and can be repeated.
fn failed(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "a statement on the service's own tables failed").with_source(error)
}
