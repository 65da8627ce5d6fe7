//! A connection for one call.

use landfall_core::{Database, Result};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{FromRow, PgConnection, Postgres as Server, Transaction};

use crate::Postgres;
use crate::statements::Sql;

/// A plain connection, or a transaction where the connection is shared through a pooler in transaction mode.
///
/// Through such a pooler, even a single statement needs a transaction, since preparing and executing it are two
/// protocol messages. Elsewhere a transaction would only cost round trips.
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

    /// Returns whether a statement outside a transaction runs as READ COMMITTED. A statement that waits for a lock and
    /// reads again must see what was committed meanwhile; with another default, a transaction names the level.
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

    /// Returns whether statements may be prepared under a name, for later calls on the same connection.
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

    /// Runs a single statement in its own session and returns its rows.
    pub(crate) async fn rows(&self, doing: &'static str, query: Query<'_, Server, PgArguments>) -> Result<Vec<PgRow>> {
        let mut session = self.session().await?;
        let rows = query.fetch_all(session.connection()).await.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(rows)
    }

    /// Runs a single statement in its own session and returns its only row.
    pub(crate) async fn row(&self, doing: &'static str, query: Query<'_, Server, PgArguments>) -> Result<PgRow> {
        let mut session = self.session().await?;
        let row = query.fetch_one(session.connection()).await.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(row)
    }

    /// Runs a single statement in its own session and returns the first column of every row.
    pub(crate) async fn values<O>(
        &self,
        doing: &'static str,
        query: QueryScalar<'_, Server, O, PgArguments>,
    ) -> Result<Vec<O>>
    where
        O: Send + Unpin,
        (O,): for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let mut session = self.session().await?;
        let values = query.fetch_all(session.connection()).await.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(values)
    }

    /// Runs a single statement in its own session and returns the first column of its only row.
    pub(crate) async fn value<O>(
        &self,
        doing: &'static str,
        query: QueryScalar<'_, Server, O, PgArguments>,
    ) -> Result<O>
    where
        O: Send + Unpin,
        (O,): for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let mut session = self.session().await?;
        let value = query.fetch_one(session.connection()).await.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(value)
    }
}
