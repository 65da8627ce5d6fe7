//! The doctor's checks of a SQLite database: connection settings, the file and its disk.
//!
//! The checks open no file. SQLite's locks belong to the process, and closing another handle of the same file would
//! release them. The checks read file names and sizes, and ask SQLite for the rest.

mod file;
mod settings;
mod tables;

use std::path::PathBuf;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Result};
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

const DOING: &str = "run the doctor's checks";

/// A connection that the checks run on.
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

    /// Returns the file that SQLite has opened; `None` for an in-memory database.
    async fn file(&mut self) -> Result<Option<PathBuf>> {
        let (path,): (Option<String>,) = self.ask("SELECT file FROM pragma_database_list WHERE name = 'main'").await?;
        Ok(path.filter(|path| !path.is_empty()).map(PathBuf::from))
    }
}
