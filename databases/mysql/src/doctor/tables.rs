//! Landfall's own tables: their version, and changes made to them by hand.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::{ExpectedTables, Finding, Rank, Result, Schema};

use super::{Checkup, text};
use crate::MySql;

const SCHEMA: &str = "mysql.schema";
const ENGINE: (&str, Rank) = ("mysql.engine", Rank::Loss);
const MISSING: &str = "mysql.missing-index";

pub(super) async fn version(database: &MySql) -> Result<Option<Finding>> {
    let state = database.state().await?;
    let Err(error) = state.require_current() else { return Ok(None) };
    let mend = if state.found > state.expected { "use a newer landfall" } else { "landfall migrate" };
    let about = format!("tables {}*", database.prefix());
    Ok(Some(Finding::new((SCHEMA, Rank::Latency), about, error.to_string(), mend)))
}

/// Reports missing tables, and tables without transactions: their writes survive a rollback, and can be lost in a
/// crash.
pub(super) async fn engines(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let question = format!("SELECT table_name, engine FROM information_schema.tables WHERE {}", own_tables(checkup));
    let rows = checkup.ask(question).await?.unwrap_or_default();
    let found: BTreeMap<String, String> = rows.iter().map(|row| (text(row, 0), text(row, 1))).collect();
    let judge = |table: &str| match found.get(bare(table)) {
        None => {
            let what = format!("the table {table} is missing although the schema has this build's version");
            let mend = "restore it from a backup, or from `landfall migrate --print`";
            Some(Finding::new((SCHEMA, Rank::Loss), table, what, mend))
        }
        Some(engine) if !engine.eq_ignore_ascii_case("InnoDB") => {
            let what = format!(
                "the table {table} uses {engine}, which has no transactions: rolled back writes stay, and committed \
                 ones \
                 can be lost in a crash"
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
    let judge = |index: &landfall_core::ExpectedIndex| {
        let so_that = match index.rank() {
            Rank::Duplicates => "the same message can be handled twice",
            _ => "calls get slower with the number of rows, and statements that name the index fail",
        };
        let what = format!("the {index} is missing: {so_that}");
        Finding::new(
            (MISSING, index.rank()),
            index.to_string(),
            what,
            "create it as `landfall migrate --print` \
             shows it",
        )
    };
    Ok(missing.map(judge).collect())
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
