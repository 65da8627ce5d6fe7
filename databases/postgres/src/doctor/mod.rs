//! The doctor's checks of a PostgreSQL server: settings, tables, replication and sessions that break a promise.
//!
//! The checks read catalogs and statistics on one connection. They change and lock nothing.

mod activity;
mod clock;
mod pooler;
mod replication;
mod settings;
mod tables;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Result};
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{PgConnection, Postgres as Server};

use crate::Postgres;

#[async_trait]
impl Diagnose for Postgres {
    async fn diagnose(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings = pooler::sharing(self).await?;
        if findings.iter().any(|finding| finding.rank == Rank::Loss) {
            // Answers through such a connection are unreliable.
            return Ok(findings);
        }
        findings.extend(tables::version(self).await?);
        let is_current = findings.iter().all(|finding| finding.check != tables::SCHEMA);
        let mut session = self.session().await?;
        let mut checkup = Checkup { database: self, connection: session.connection() };
        findings.extend(settings::durability(&mut checkup).await?);
        findings.extend(settings::commits_of_roles(&mut checkup).await?);
        findings.extend(settings::vacuum(&mut checkup).await?);
        if is_current {
            findings.extend(tables::indexes(&mut checkup).await?);
            findings.extend(tables::unlogged(&mut checkup).await?);
            findings.extend(tables::vacuum(&mut checkup).await?);
        }
        if let Some(standby) = replication::is_standby(&mut checkup).await? {
            findings.push(standby);
        } else {
            findings.extend(replication::standbys(&mut checkup).await?);
            findings.extend(replication::slots(&mut checkup).await?);
        }
        findings.extend(activity::missing_privilege(&mut checkup).await?);
        findings.extend(activity::long_transactions(&mut checkup).await?);
        findings.extend(activity::prepared_transactions(&mut checkup).await?);
        findings.extend(activity::connections(&mut checkup).await?);
        findings.extend(clock::skew(&mut checkup).await?);
        session.finish().await.map_err(self.could_not(DOING))?;
        Ok(findings)
    }
}

const DOING: &str = "run the doctor's checks";

/// A connection that the checks run on.
struct Checkup<'a> {
    database: &'a Postgres,
    connection: &'a mut PgConnection,
}

type Ask<'q, O> = QueryAs<'q, Server, O, PgArguments>;

impl Checkup<'_> {
    async fn ask<O>(&mut self, question: Ask<'_, O>) -> Result<Vec<O>>
    where
        O: Send + Unpin + for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
    {
        let question = question.persistent(self.database.may_prepare());
        question.fetch_all(&mut *self.connection).await.map_err(self.database.could_not(DOING))
    }
}

/// Formats a number of bytes.
fn size(bytes: i64) -> String {
    const MIB: i64 = 1024 * 1024;
    if bytes < MIB {
        format!("{bytes} bytes")
    } else if bytes < 1024 * MIB {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{:.1} GiB", bytes as f64 / (1024 * MIB) as f64)
    }
}

/// Formats a number of seconds.
fn time(seconds: f64) -> String {
    let seconds = std::time::Duration::try_from_secs_f64(seconds.max(0.0).floor()).unwrap_or_default();
    landfall_core::Span::Time(seconds).to_string()
}
