//! The doctor's checks of a MariaDB or MySQL server: settings, tables, replication and sessions that break a promise.
//!
//! The checks read variables, status and `information_schema` on one connection. They change and lock nothing. Where
//! the two servers use different names, both are tried.

mod activity;
mod clock;
mod replication;
mod settings;
mod tables;
mod variables;

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Result};
use sqlx::mysql::{MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use crate::MySql;
use variables::Variables;

#[async_trait]
impl Diagnose for MySql {
    async fn diagnose(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings: Vec<Finding> = tables::version(self).await?.into_iter().collect();
        let is_current = findings.is_empty();
        let mut connection = self.pool().acquire().await.map_err(self.could_not("open a connection"))?;
        let mut checkup = Checkup { database: self, connection: &mut connection };
        let variables = Variables::read(&mut checkup).await?;
        findings.extend(settings::durability(&variables));
        findings.extend(settings::transactions(&variables));
        if is_current {
            findings.extend(tables::engines(&mut checkup).await?);
            findings.extend(tables::indexes(&mut checkup).await?);
        }
        findings.extend(replication::read_only(&variables));
        findings.extend(replication::is_replica(&mut checkup, &variables).await?);
        findings.extend(replication::semi_synchronous(&variables));
        findings.extend(activity::long_transactions(&mut checkup).await?);
        findings.extend(activity::connections(&variables));
        findings.extend(clock::skew(&mut checkup).await?);
        Ok(findings)
    }
}

const DOING: &str = "run the doctor's checks";

/// A connection that the checks run on.
struct Checkup<'a> {
    database: &'a MySql,
    connection: &'a mut MySqlConnection,
}

impl Checkup<'_> {
    /// Returns `None` without the privilege to ask. Not prepared, since servers answer some statements only as text.
    async fn ask(&mut self, question: impl Into<Arc<str>>) -> Result<Option<Vec<MySqlRow>>> {
        let question: Arc<str> = question.into();
        match sqlx::raw_sql(AssertSqlSafe(question)).fetch_all(&mut *self.connection).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if is_denied(&error) => Ok(None),
            Err(error) => Err(self.database.could_not(DOING)(error)),
        }
    }
}

/// Returns a column of any type as text; empty if it is null or missing.
fn text(row: &MySqlRow, column: impl sqlx::ColumnIndex<MySqlRow>) -> String {
    row.try_get_unchecked::<Option<String>, _>(column).ok().flatten().unwrap_or_default()
}

/// Returns whether a privilege is missing, for the statement or for the table.
fn is_denied(error: &sqlx::Error) -> bool {
    let number = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    number.is_some_and(|error| matches!(error.number(), 1044 | 1142 | 1227))
}

/// Reports a check that this account lacks the privilege for.
fn hidden(what: &str, privilege: &str) -> Finding {
    Finding::new(
        ("mysql.sight", Rank::Latency),
        privilege,
        format!("this account lacks the privilege {privilege}: {what} not checked"),
        format!("GRANT {privilege} ON *.* TO the account in the URL;"),
    )
}
