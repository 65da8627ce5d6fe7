//! What the doctor sees in a PostgreSQL server: settings, tables, replication and sessions that break a promise.
//!
//! Everything is read from the catalogs and the statistics, on one connection; nothing is changed and nothing is locked.

mod activity;
mod clock;
mod pooler;
mod replication;
mod settings;
mod tables;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, Finding, Rank, Result};
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{PgConnection, Postgres as Server};

use crate::Postgres;

#[async_trait]
impl Diagnose for Postgres {
    async fn diagnose(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings = pooler::sharing(self).await?;
        if findings.iter().any(|finding| finding.rank == Rank::Loss) {
            // Through such a connection no answer is to be trusted.
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
        if let Some(standby) = replication::being_a_standby(&mut checkup).await? {
            findings.push(standby);
        } else {
            findings.extend(replication::standbys(&mut checkup).await?);
            findings.extend(replication::slots(&mut checkup).await?);
        }
        findings.extend(activity::what_cannot_be_seen(&mut checkup).await?);
        findings.extend(activity::long_transactions(&mut checkup).await?);
        findings.extend(activity::prepared_transactions(&mut checkup).await?);
        findings.extend(activity::connections(&mut checkup).await?);
        findings.extend(clock::skew(&mut checkup).await?);
        session.finish().await.map_err(self.could_not(DOING))?;
        Ok(findings)
    }
}

const DOING: &str = "be examined";

/// The server while it is looked at.
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

/// Bytes as people read them.
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

/// Seconds as people read them.
fn time(seconds: f64) -> String {
    let seconds = std::time::Duration::try_from_secs_f64(seconds.max(0.0).floor()).unwrap_or_default();
    landfall_core::Span::Time(seconds).to_string()
}
