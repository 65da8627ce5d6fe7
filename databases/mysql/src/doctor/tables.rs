//! Landfall's own tables: their version, and changes made to them by hand.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::adapter::ExpectedTables;
use landfall_core::{Finding, Rank, Result, Schema};
use landfall_sql_toolkit::{missing_index_finding, missing_table_finding, schema_finding};

use super::{Checkup, text};
use crate::MySql;

const SCHEMA: &str = "mysql.schema";
const ENGINE: (&str, Rank) = ("mysql.engine", Rank::Loss);
const MISSING: &str = "mysql.missing-index";
const SLOWER_OR_FAILING: &str = "calls get slower with the number of rows, and statements that name the index fail";

pub(super) async fn version(database: &MySql) -> Result<Option<Finding>> {
    Ok(schema_finding(SCHEMA, database.prefix(), database.state().await?))
}

/// Reports missing tables, and tables without transactions: their writes survive a rollback, and can be lost in a
/// crash.
pub(super) async fn engines(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let question = format!("SELECT table_name, engine FROM information_schema.tables WHERE {}", own_tables(checkup));
    let rows = checkup.ask(question).await?.unwrap_or_default();
    let found: BTreeMap<String, String> = rows.iter().map(|row| (text(row, 0), text(row, 1))).collect();
    let judge = |table: &str| match found.get(bare(table)) {
        None => Some(missing_table_finding(SCHEMA, table)),
        Some(engine) if !engine.eq_ignore_ascii_case("InnoDB") => {
            let what = format!(
                "the table {table} uses {engine}, which has no transactions: rolled back writes stay, and committed \
                 ones can be lost in a crash"
            );
            Some(Finding::new(ENGINE, table, what, format!("ALTER TABLE {table} ENGINE = InnoDB;")))
        }
        Some(_) => None,
    };
    Ok(expected.tables.iter().filter_map(|table| judge(&table.name)).collect())
}

pub(super) async fn indexes(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    // Each table at least once, also a table without any index.
    let question = format!(
        "SELECT table_name, index_name FROM information_schema.tables
         LEFT JOIN information_schema.statistics USING (table_schema, table_name) WHERE {}",
        own_tables(checkup)
    );
    let rows = checkup.ask(question).await?.unwrap_or_default();
    let found: BTreeSet<(String, String)> = rows.iter().map(|row| (text(row, 0), text(row, 1))).collect();
    let is_missing = |table: &str, name: &str| !found.contains(&(bare(table).to_owned(), name.to_owned()));
    let missing = expected
        .indexes
        .iter()
        .filter(|index| is_missing(&index.table, index.name.as_deref().unwrap_or("PRIMARY")))
        // A missing table is reported separately.
        .filter(|index| found.iter().any(|(table, _)| table == bare(&index.table)));
    Ok(missing.map(|index| missing_index_finding(MISSING, index, SLOWER_OR_FAILING)).collect())
}

/// Returns the condition for Landfall's tables. In the prefix, a validated identifier, only the underscore is special
/// in `LIKE`.
fn own_tables(checkup: &Checkup<'_>) -> String {
    let prefix = checkup.database.prefix();
    let schema = prefix.schema().map_or("DATABASE()".to_owned(), |schema| format!("'{schema}'"));
    format!("table_schema = {schema} AND table_name LIKE '{}%'", prefix.bare().replace('_', "\\_"))
}

fn bare(table: &str) -> &str {
    table.rsplit('.').next().unwrap_or(table)
}
