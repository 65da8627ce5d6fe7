//! Landfall's own tables: their version, and missing tables and indexes.

use std::collections::BTreeSet;

use landfall_core::{ExpectedIndex, ExpectedTables, Finding, Rank, Result, Schema};

use super::{Checkup, DOING};
use crate::Sqlite;

const SCHEMA: &str = "sqlite.schema";
const MISSING: &str = "sqlite.missing-index";

pub(super) async fn version(database: &Sqlite) -> Result<Option<Finding>> {
    let state = database.state().await?;
    let Err(error) = state.require_current() else { return Ok(None) };
    let mend = if state.found > state.expected { "use a newer landfall" } else { "landfall migrate" };
    let about = format!("tables {}*", database.prefix());
    Ok(Some(Finding::new((SCHEMA, Rank::Latency), about, error.to_string(), mend)))
}

/// SQLite cannot drop a primary key, so only named indexes can be missing.
pub(super) async fn indexes(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let question = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'index')";
    let found: Vec<(String,)> =
        sqlx::query_as(question).fetch_all(&mut *checkup.connection).await.map_err(checkup.database.cannot(DOING))?;
    let found: BTreeSet<&str> = found.iter().map(|(name,)| name.as_str()).collect();
    let missing_tables =
        expected.tables.iter().map(|table| table.name.as_str()).filter(|name| !found.contains(name)).map(|table| {
            let what = format!("the table {table} is missing although the schema has this build's version");
            let mend = "restore it from a backup, or from `landfall migrate --print`";
            Finding::new((SCHEMA, Rank::Loss), table, what, mend)
        });
    let is_missing = |index: &&ExpectedIndex| {
        found.contains(index.table.as_str()) && index.name.as_ref().is_some_and(|name| !found.contains(name.as_str()))
    };
    let missing = expected.indexes.iter().filter(is_missing).map(|index| {
        let so_that = match index.rank() {
            Rank::Duplicates => "the same message can be handled twice",
            _ => "calls get slower with the number of rows",
        };
        let what = format!("the {index} is missing: {so_that}");
        Finding::new(
            (MISSING, index.rank()),
            index.to_string(),
            what,
            "create it as `landfall migrate --print` \
             shows it",
        )
    });
    Ok(missing_tables.chain(missing).collect())
}
