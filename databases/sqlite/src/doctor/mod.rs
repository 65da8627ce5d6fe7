//! What the doctor sees in a SQLite database: settings of the connections, the file and the disk that it is on.
//!
//! No file is ever opened here. SQLite's locks belong to the process, and closing a file that it has open by another
//! handle would release them: names and sizes are looked at, the rest is asked of SQLite.

mod file;
mod settings;
mod tables;

use std::path::PathBuf;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, Finding, Result};
use sqlx::SqliteConnection;

use crate::Sqlite;

#[async_trait]
impl Diagnose for Sqlite {
    async fn diagnose(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings: Vec<Finding> = tables::version(self).await?.into_iter().collect();
        let is_current = findings.is_empty();
        let mut connection = self.inner.pool.acquire().await.map_err(self.cannot(DOING))?;
        let mut checkup = Checkup { database: self, connection: &mut connection };
        if is_current {
            findings.extend(tables::indexes(&mut checkup).await?);
        }
        let Some(file) = checkup.file().await? else {
            findings.push(settings::in_memory());
            return Ok(findings);
        };
        findings.extend(settings::synchronous(&mut checkup).await?);
        findings.extend(settings::journal(&mut checkup).await?);
        findings.extend(settings::locking(&mut checkup).await?);
        findings.extend(file::checkpoint(&mut checkup, &file).await?);
        findings.extend(file::disk(&file)?);
        Ok(findings)
    }
}

const DOING: &str = "look at the settings";

/// The database while it is looked at.
struct Checkup<'a> {
    database: &'a Sqlite,
    connection: &'a mut SqliteConnection,
}

impl Checkup<'_> {
    async fn ask<O>(&mut self, question: &'static str) -> Result<O>
    where
        O: Send + Unpin + for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow>,
    {
        sqlx::query_as(question).fetch_one(&mut *self.connection).await.map_err(self.database.cannot(DOING))
    }

    /// The file as SQLite has opened it; `None` for a database in memory.
    async fn file(&mut self) -> Result<Option<PathBuf>> {
        let (path,): (Option<String>,) = self.ask("SELECT file FROM pragma_database_list WHERE name = 'main'").await?;
        Ok(path.filter(|path| !path.is_empty()).map(PathBuf::from))
    }
}
