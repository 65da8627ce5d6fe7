//! A connection for one call.

use landfall_core::{Database, Result};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{FromRow, PgConnection, Postgres as Server, Transaction};

use crate::Postgres;
use crate::statements::Sql;

/// Through a pooler that shares connections by the transaction, what belongs together must be one transaction, and be
/// it a single statement: preparing and running it are two messages. Elsewhere that would only cost round trips.
pub(crate) enum Session {
    Plain(PoolConnection<sqlx::Postgres>),
    Transaction(Transaction<'static, sqlx::Postgres>),
}

impl Session {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        match self {
            Session::Plain(connection) => connection,
            Session::Transaction(transaction) => transaction,
        }
    }

    pub(crate) async fn finish(self) -> sqlx::Result<()> {
        match self {
            Session::Plain(_) => Ok(()),
            Session::Transaction(transaction) => transaction.commit().await,
        }
    }
}

impl Postgres {
    pub(crate) async fn session(&self) -> Result<Session> {
        let doing = "open a connection";
        if !self.reads_committed().await.map_err(self.could_not(doing))? {
            return Ok(Session::Transaction(self.begin().await?));
        }
        self.pool().acquire().await.map(Session::Plain).map_err(self.could_not(doing))
    }

    /// Whether a statement by itself, on a connection of its own, runs as READ COMMITTED. What waits for a lock and then
    /// looks again must see what was committed meanwhile; where the server's default is another, the level is named.
    pub(crate) async fn reads_committed(&self) -> sqlx::Result<bool> {
        if self.inner.pooler {
            return Ok(false);
        }
        let ask = || async {
            let level: String = sqlx::query_scalar("SHOW default_transaction_isolation").fetch_one(self.pool()).await?;
            Ok(level == "read committed")
        };
        self.inner.reads_committed.get_or_try_init(ask).await.copied()
    }

    /// Whether statements may be prepared under a name, for later calls on the same connection.
    pub(crate) fn may_prepare(&self) -> bool {
        !self.inner.pooler
    }

    pub(crate) fn query<'q>(&self, statement: &Sql) -> Query<'q, Server, PgArguments> {
        sqlx::query(statement.text()).persistent(self.may_prepare())
    }

    pub(crate) fn query_as<'q, O: for<'r> FromRow<'r, PgRow>>(
        &self,
        statement: &Sql,
    ) -> QueryAs<'q, Server, O, PgArguments> {
        sqlx::query_as(statement.text()).persistent(self.may_prepare())
    }

    pub(crate) fn query_scalar<'q, O>(&self, statement: &Sql) -> QueryScalar<'q, Server, O, PgArguments>
    where
        (O,): for<'r> FromRow<'r, PgRow>,
    {
        sqlx::query_scalar(statement.text()).persistent(self.may_prepare())
    }
}
