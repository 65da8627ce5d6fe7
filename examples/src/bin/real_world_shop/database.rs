//! The SQL of this shop, on either database. A real service picks one database and uses it directly; only an example
//! that runs on both needs a trait in between.

use landfall::postgres::{self, Postgres};
use landfall::sqlite::{self, Sqlite};
use landfall::{Inbox, Leases, OutboxQueue, OutboxWriter, Schema};
use landfall_examples::Result;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

pub(crate) trait ShopDatabase: OutboxWriter + Inbox + OutboxQueue + Leases {
    /// Opens a new database for one service, with Landfall's tables in it.
    fn open(location: &str, service: &'static str) -> impl Future<Output = Result<Self>> + Send;

    /// Runs a statement in the caller's transaction. Returns the number of rows it changed.
    fn execute(
        connection: &mut Self::Connection,
        statement: &'static str,
        values: &[&str],
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Runs a statement in its own transaction.
    fn execute_in_transaction(
        &self,
        statement: &'static str,
        values: &[&str],
    ) -> impl Future<Output = Result<u64>> + Send {
        async move {
            let mut transaction = self.begin().await?;
            let changed = Self::execute(&mut transaction, statement, values).await?;
            self.commit(transaction).await?;
            Ok(changed)
        }
    }

    /// The two text columns of a query's rows.
    fn pairs(&self, query: &'static str) -> impl Future<Output = Result<Vec<(String, String)>>> + Send;
}

/// The two implementations differ only in their types and in how they are opened.
macro_rules! statements {
    () => {
        async fn execute(
            connection: &mut Self::Connection,
            statement: &'static str,
            values: &[&str],
        ) -> Result<u64, sqlx::Error> {
            let query = values.iter().fold(sqlx::query(statement), |query, value| query.bind((*value).to_owned()));
            Ok(query.execute(connection).await?.rows_affected())
        }

        async fn pairs(&self, query: &'static str) -> Result<Vec<(String, String)>> {
            Ok(sqlx::query_as(query).fetch_all(self.pool()).await?)
        }
    };
}

impl ShopDatabase for Sqlite {
    /// Opens a separate file in the folder `location`.
    async fn open(location: &str, service: &'static str) -> Result<Self> {
        let database = Sqlite::open(&format!("{location}/{service}.db"), sqlite::Options::default()).await?;
        database.migrate().await?;
        Ok(database)
    }

    statements!();
}

impl ShopDatabase for Postgres {
    /// Creates a separate schema on the server at `location`, so that one URL is enough for both services.
    async fn open(location: &str, service: &'static str) -> Result<Self> {
        let mut connection = PgConnection::connect(location).await?;
        let schema = format!("DROP SCHEMA IF EXISTS {service} CASCADE; CREATE SCHEMA {service}");
        connection.execute(AssertSqlSafe(schema)).await?;
        connection.close().await?;

        let separator = if location.contains('?') { '&' } else { '?' };
        let url = format!("{location}{separator}options[search_path]={service}");
        let database = Postgres::connect(&url, postgres::Options::default()).await?;
        database.migrate().await?;
        Ok(database)
    }

    statements!();
}
