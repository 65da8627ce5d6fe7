use landfall_core::adapter::{ExpectedIndex, SchemaState};
use landfall_core::{Finding, Rank, TablePrefix};

/// What a missing index costs, unless a server has more to say: see [`missing_index_finding`].
pub const SLOWER: &str = "calls get slower with the number of rows";

/// Reports tables of another version than this build's.
pub fn schema_finding(check: &'static str, prefix: &TablePrefix, state: SchemaState) -> Option<Finding> {
    let error = state.require_current().err()?;
    let mend = if state.found > state.expected { "use a newer landfall" } else { "landfall migrate" };
    // Without tables nothing can be enqueued, and nothing of them can be checked.
    let rank = if state.found == 0 { Rank::Loss } else { Rank::Latency };
    Some(Finding::new((check, rank), format!("tables {prefix}*"), error.to_string(), mend))
}

/// Reports a table that is missing although the schema's version is current.
pub fn missing_table_finding(check: &'static str, table: &str) -> Finding {
    let what = format!("the table {table} is missing although the schema has this build's version");
    Finding::new((check, Rank::Loss), table, what, "restore it from a backup, or from `landfall migrate --print`")
}

/// Returns what happens without the index: duplicates if it is unique, otherwise `slower`.
pub fn index_consequence(index: &ExpectedIndex, slower: &'static str) -> &'static str {
    if index.rank() == Rank::Duplicates { "the same message can be handled twice" } else { slower }
}

pub fn missing_index_finding(check: &'static str, index: &ExpectedIndex, slower: &'static str) -> Finding {
    let what = format!("the {index} is missing: {}", index_consequence(index, slower));
    let mend = "create it as `landfall migrate --print` shows it";
    Finding::new((check, index.rank()), index.to_string(), what, mend)
}
