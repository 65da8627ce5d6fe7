//! A server that is, or has, a replica.

use landfall_core::{Finding, Rank, Result};
use sqlx::mysql::MySqlRow;

use super::variables::Variables;
use super::{Checkup, hidden, text};

const READ_ONLY: (&str, Rank) = ("mysql.read-only", Rank::Latency);
const REPLICA: (&str, Rank) = ("mysql.replica", Rank::Loss);
const LAG: (&str, Rank) = ("mysql.replica-lag", Rank::Latency);
const SEMI_SYNC: (&str, Rank) = ("mysql.semi-sync", Rank::Loss);

/// A lag above this is not momentary.
const LATE_SECONDS: u64 = 30;

pub(super) fn read_only(variables: &Variables) -> Option<Finding> {
    let name = ["super_read_only", "read_only"].into_iter().find(|name| variables.is_on(name))?;
    let what = format!("{name} is on: no message is sent or handled through this server");
    let mend = format!("use the primary's address in the URL; or, if this is it, SET GLOBAL {name} = OFF;");
    Some(Finding::new(READ_ONLY, name, what, mend))
}

/// Reports a replica: its own writes never reach its source, and are lost when the replica is rebuilt.
pub(super) async fn is_replica(checkup: &mut Checkup<'_>, variables: &Variables) -> Result<Vec<Finding>> {
    // The first is the current statement of both servers, the second that of older ones.
    let mut status = checkup.ask("SHOW REPLICA STATUS").await;
    if status.is_err() {
        status = checkup.ask("SHOW SLAVE STATUS").await;
    }
    let Some(rows) = status? else {
        let is_mariadb = variables.get("version").is_some_and(|version| version.contains("MariaDB"));
        let privilege = if is_mariadb { "REPLICA MONITOR" } else { "REPLICATION CLIENT" };
        return Ok(vec![hidden("whether this server is a replica, and its lag, were", privilege)]);
    };
    let mut findings = Vec::new();
    for row in &rows {
        let source = either(row, "Source_Host", "Master_Host");
        let about = format!("replica of {source}");
        if !variables.is_on("read_only") {
            let what = format!(
                "this server is a replica of {source} and accepts writes: they never reach {source}, and are lost when \
                 the replica is rebuilt"
            );
            let mend = "use the primary's address in the URL; SET GLOBAL read_only = ON here, or RESET REPLICA ALL if \
                 it is no replica";
            findings.push(Finding::new(REPLICA, &about, what, mend));
        }
        let late = either(row, "Seconds_Behind_Source", "Seconds_Behind_Master");
        let what = match late.parse::<u64>() {
            Ok(seconds) if seconds <= LATE_SECONDS => continue,
            Ok(seconds) => format!("this server is {seconds} s behind {source}: reads are that stale"),
            Err(_) => {
                let error = [either(row, "Last_IO_Error", ""), either(row, "Last_SQL_Error", "")].concat();
                let why = if error.is_empty() { "it was stopped".to_owned() } else { error };
                format!("replication from {source} has stopped ({why}): reads get more and more stale")
            }
        };
        findings.push(Finding::new(
            LAG,
            &about,
            what,
            "SHOW REPLICA STATUS gives the reason; START REPLICA; resumes \
             it",
        ));
    }
    Ok(findings)
}

/// Returns a column by its new or old name: each server has renamed its columns differently.
fn either(row: &MySqlRow, new: &str, old: &str) -> String {
    let found = text(row, new);
    if found.is_empty() && !old.is_empty() { text(row, old) } else { found }
}

/// Reports semi-synchronous replication that has fallen back to asynchronous.
pub(super) fn semi_synchronous(variables: &Variables) -> Option<Finding> {
    let side = ["master", "source"].into_iter().find(|side| {
        variables.is_on(&format!("rpl_semi_sync_{side}_enabled"))
            && variables.is_off(&format!("rpl_semi_sync_{side}_status"))
    })?;
    let what = "semi-synchronous replication is enabled, but no replica answered in time and commits no longer wait: \
         if a replica takes over, the transactions that it lacks are lost";
    let mend =
        format!("bring a semi-synchronous replica back; a longer rpl_semi_sync_{side}_timeout keeps commits waiting");
    Some(Finding::new(SEMI_SYNC, format!("rpl_semi_sync_{side}_status"), what, mend))
}
