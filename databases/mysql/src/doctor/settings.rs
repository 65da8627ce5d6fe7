//! Settings that affect durability and transactions.

use landfall_core::{Finding, Rank};

use super::variables::Variables;

const FLUSH: (&str, Rank) = ("mysql.flush-log", Rank::Loss);
const BINLOG: (&str, Rank) = ("mysql.sync-binlog", Rank::Loss);
const DOUBLEWRITE: (&str, Rank) = ("mysql.doublewrite", Rank::Loss);
const METHOD: (&str, Rank) = ("mysql.flush-method", Rank::Loss);
const AUTOCOMMIT: (&str, Rank) = ("mysql.autocommit", Rank::Loss);
const FORMAT: (&str, Rank) = ("mysql.binlog-format", Rank::Latency);

/// Settings with which a power cut loses committed data.
pub(super) fn durability(variables: &Variables) -> Vec<Finding> {
    let mut findings = Vec::new();
    let flush = variables.get("innodb_flush_log_at_trx_commit").unwrap_or("1");
    // MariaDB's 3 syncs once more than 1.
    if !matches!(flush, "1" | "3") {
        let what = format!(
            "innodb_flush_log_at_trx_commit is {flush}: commits return before they are on disk, and a crash loses the \
             last second: messages, and effects that were already acknowledged to the broker"
        );
        let mend = "SET GLOBAL innodb_flush_log_at_trx_commit = 1; and the same in the server's configuration";
        findings.push(Finding::new(FLUSH, "innodb_flush_log_at_trx_commit", what, mend));
    }
    if variables.is_on("log_bin") && variables.number("sync_binlog").is_some_and(|every| every != 1) {
        let what = format!(
            "sync_binlog is {} with the binary log on: after a crash the log lacks the last transactions, which are \
             rolled back or never reach the replicas",
            variables.get("sync_binlog").unwrap_or_default()
        );
        let mend = "SET GLOBAL sync_binlog = 1; and the same in the server's configuration";
        findings.push(Finding::new(BINLOG, "sync_binlog", what, mend));
    }
    let doublewrite = variables.get("innodb_doublewrite").unwrap_or("ON").to_ascii_uppercase();
    if matches!(doublewrite.as_str(), "OFF" | "0" | "DETECT_ONLY") {
        let what = format!("innodb_doublewrite is {doublewrite}: a page that is half written in a crash is lost");
        let mend = "innodb_doublewrite = ON in the server's configuration, unless the file system writes pages whole";
        findings.push(Finding::new(DOUBLEWRITE, "innodb_doublewrite", what, mend));
    }
    let method = variables.get("innodb_flush_method").unwrap_or_default();
    if matches!(method.to_ascii_lowercase().as_str(), "nosync" | "littlesync") {
        let what = format!("innodb_flush_method is {method}: data files are not synced, and a crash damages them");
        findings.push(Finding::new(
            METHOD,
            "innodb_flush_method",
            what,
            "innodb_flush_method = O_DIRECT in the server's configuration",
        ));
    }
    findings
}

/// Settings that the statements of this adapter rely on.
pub(super) fn transactions(variables: &Variables) -> Vec<Finding> {
    let mut findings = Vec::new();
    if variables.is_off("autocommit") {
        let what = "autocommit is off: a statement outside a transaction is rolled back when its connection closes";
        let mend = "remove autocommit = 0 from init_connect, the server's configuration and what opens connections";
        findings.push(Finding::new(AUTOCOMMIT, "autocommit", what, mend));
    }
    let format = variables.get("binlog_format").unwrap_or_default();
    if variables.is_on("log_bin") && format.eq_ignore_ascii_case("STATEMENT") {
        let what = "binlog_format is STATEMENT with the binary log on: the server refuses writes in READ COMMITTED \
             transactions, which landfall uses";
        let mend = "SET GLOBAL binlog_format = 'ROW'; and the same in the server's configuration";
        findings.push(Finding::new(FORMAT, "binlog_format", what, mend));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(variables: &[(&str, &str)]) -> Vec<&'static str> {
        let variables = Variables::from(variables);
        durability(&variables).into_iter().chain(transactions(&variables)).map(|finding| finding.check).collect()
    }

    #[test]
    fn settings_of_both_servers_are_recognised() {
        assert_eq!(
            checks(&[("innodb_flush_log_at_trx_commit", "3"), ("innodb_doublewrite", "DETECT_AND_RECOVER")]),
            [""; 0]
        );
        assert_eq!(checks(&[("innodb_doublewrite", "DETECT_ONLY")]), ["mysql.doublewrite"]);
        assert_eq!(checks(&[("log_bin", "ON"), ("sync_binlog", "1000")]), ["mysql.sync-binlog"]);
    }

    #[test]
    fn binary_log_that_is_off_needs_no_sync_and_no_format() {
        assert_eq!(checks(&[("log_bin", "OFF"), ("sync_binlog", "0"), ("binlog_format", "STATEMENT")]), [""; 0]);
        assert_eq!(checks(&[]), [""; 0]);
    }
}
