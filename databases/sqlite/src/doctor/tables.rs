//! Landfall's own tables: their version, and missing tables and indexes.

use std::collections::BTreeSet;

use landfall_core::adapter::{ExpectedIndex, ExpectedTables};
use landfall_core::{Finding, Result, Schema};
use landfall_sql_toolkit::{SLOWER, missing_index_finding, missing_table_finding, schema_finding};

use super::{Checkup, DOING};
use crate::Sqlite;

const SCHEMA: &str = "sqlite.schema";
const MISSING: &str = "sqlite.missing-index";

pub(super) async fn version(database: &Sqlite) -> Result<Option<Finding>> {
    Ok(schema_finding(SCHEMA, database.prefix(), database.state().await?))
}

/// SQLite cannot drop a primary key, so only named indexes can be missing.
pub(super) async fn indexes(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let question = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'index')";
    let found: Vec<(String,)> =
        sqlx::query_as(question).fetch_all(&mut *checkup.connection).await.map_err(checkup.database.cannot(DOING))?;
    let found: BTreeSet<&str> = found.iter().map(|(name,)| name.as_str()).collect();
    let missing_tables = expected.tables.iter().map(|table| table.name.as_str()).filter(|name| !found.contains(name));
    let missing_tables = missing_tables.map(|table| missing_table_finding(SCHEMA, table));
    let is_missing = |index: &&ExpectedIndex| {
        found.contains(index.table.as_str()) && index.name.as_ref().is_some_and(|name| !found.contains(name.as_str()))
    };
    let missing = expected.indexes.iter().filter(is_missing);
    let missing = missing.map(|index| missing_index_finding(MISSING, index, SLOWER));
    Ok(missing_tables.chain(missing).collect())
}
