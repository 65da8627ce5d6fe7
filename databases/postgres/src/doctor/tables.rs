//! Landfall's own tables: their version, and changes made to them by hand.

use std::collections::BTreeMap;

use landfall_core::adapter::ExpectedTables;
use landfall_core::{Finding, Rank, Result, Schema};
use landfall_sql_toolkit::{SLOWER, index_consequence, missing_index_finding, missing_table_finding, schema_finding};

use super::Checkup;
use crate::Postgres;

pub(super) const SCHEMA: &str = "postgres.schema";
const MISSING: &str = "postgres.missing-index";
const INVALID: &str = "postgres.invalid-index";
const UNLOGGED: (&str, Rank) = ("postgres.unlogged-table", Rank::Loss);
const AUTOVACUUM: (&str, Rank) = ("postgres.autovacuum", Rank::Latency);

pub(super) async fn version(database: &Postgres) -> Result<Option<Finding>> {
    Ok(schema_finding(SCHEMA, database.prefix(), database.state().await?))
}

/// An index on the server: its table, its name, its quoted name, whether it is the primary key, and whether it is
/// valid.
type Index = (String, String, String, bool, bool);

pub(super) async fn indexes(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let tables: Vec<String> = expected.tables.into_iter().map(|table| table.name).collect();
    let question = "
        SELECT name FROM unnest($1::text[]) name WHERE to_regclass(name) IS NULL";
    let gone: Vec<(String,)> = checkup.ask(sqlx::query_as(question).bind(&tables)).await?;
    let mut findings: Vec<Finding> = gone.iter().map(|(table,)| missing_table_finding(SCHEMA, table)).collect();
    let question = "
        SELECT name, class.relname::text, class.oid::regclass::text, index.indisprimary, index.indisvalid AND
            index.indisready
        FROM unnest($1::text[]) name
        JOIN pg_index index ON index.indrelid = to_regclass(name)
        JOIN pg_class class ON class.oid = index.indexrelid";
    let found: Vec<Index> = checkup.ask(sqlx::query_as(question).bind(&tables)).await?;
    let mut by_table: BTreeMap<&str, Vec<&Index>> = BTreeMap::new();
    for index in &found {
        by_table.entry(&index.0).or_default().push(index);
    }
    for index in expected.indexes.iter().filter(|index| gone.iter().all(|(table,)| *table != index.table)) {
        let of_table = by_table.get(index.table.as_str()).map_or(&[][..], Vec::as_slice);
        let is_it =
            |(_, name, _, is_primary, _): &Index| index.name.as_ref().map_or(*is_primary, |wanted| wanted == name);
        match of_table.iter().find(|found| is_it(found)) {
            None => findings.push(missing_index_finding(MISSING, index, SLOWER)),
            Some((_, _, name, _, false)) => findings.push(Finding::new(
                (INVALID, index.rank()),
                index.to_string(),
                format!(
                    "the {index} is not valid, as after an interrupted CREATE INDEX: {}",
                    index_consequence(index, SLOWER)
                ),
                format!("REINDEX INDEX {name};"),
            )),
            Some(_) => {}
        }
    }
    Ok(findings)
}

/// Reports unlogged tables, which are empty after a crash and on a standby. One is unlogged on purpose.
pub(super) async fn unlogged(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let tables: Vec<String> =
        expected.tables.into_iter().filter(|table| !table.is_unlogged).map(|table| table.name).collect();
    // Including their partitions, also those created per day.
    let question = "
        SELECT class.oid::regclass::text
        FROM unnest($1::text[]) name JOIN pg_class class
          ON class.oid = to_regclass(name)
          OR class.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(name))
        WHERE class.relpersistence = 'u' GROUP BY 1 ORDER BY 1";
    let found: Vec<(String,)> = checkup.ask(sqlx::query_as(question).bind(&tables)).await?;
    let judge = |(table,): (String,)| {
        let what =
            format!("the table {table} is unlogged: it is empty after a crash, and on a standby that takes over");
        Finding::new(UNLOGGED, &table, what, format!("ALTER TABLE {table} SET LOGGED;"))
    };
    Ok(found.into_iter().map(judge).collect())
}

pub(super) async fn vacuum(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let expected = ExpectedTables::from_ddl(&checkup.database.ddl());
    let tables: Vec<String> = expected.tables.into_iter().map(|table| table.name).collect();
    let question = "
        SELECT name FROM unnest($1::text[]) name JOIN pg_class class ON class.oid = to_regclass(name)
        CROSS JOIN LATERAL pg_options_to_table(class.reloptions) option
        WHERE option.option_name = 'autovacuum_enabled' AND NOT option.option_value::boolean";
    let found: Vec<(String,)> = checkup.ask(sqlx::query_as(question).bind(&tables)).await?;
    let judge = |(table,): (String,)| {
        let what = format!(
            "autovacuum is off for the table {table}: it keeps its dead rows and gets slower and \
             slower"
        );
        Finding::new(AUTOVACUUM, &table, what, format!("ALTER TABLE {table} RESET (autovacuum_enabled);"))
    };
    Ok(found.into_iter().map(judge).collect())
}
