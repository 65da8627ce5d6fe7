//! Standbys and replication slots.

use landfall_core::{Finding, Rank, Result};

use super::{Checkup, size};

const STANDBY: (&str, Rank) = ("postgres.standby", Rank::Latency);
const BEHIND: (&str, Rank) = ("postgres.standby-behind", Rank::Loss);
const REPLAY: (&str, Rank) = ("postgres.standby-replay", Rank::Latency);
const SLOT: &str = "postgres.replication-slot";

/// A lag above this is not momentary.
const LATE_BYTES: i64 = 32 * 1024 * 1024;

pub(super) async fn is_standby(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let rows: Vec<(bool,)> = checkup.ask(sqlx::query_as("SELECT pg_is_in_recovery()")).await?;
    let judge = || {
        let address = checkup.database.inner.server.address();
        let what = format!("{address} is a standby, which is read-only: no message is sent or handled through it");
        let mend = "use the primary's address in the URL, or one that always leads to it";
        Finding::new(STANDBY, address, what, mend)
    };
    Ok(rows.first().is_some_and(|(is_standby,)| *is_standby).then(judge))
}

/// Checks the standbys that WAL senders know; base backups and logical readers do not count.
pub(super) async fn standbys(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "
        SELECT coalesce(nullif(application_name, ''), host(client_addr), 'pid ' || pid),
               sync_state IN ('sync', 'quorum'),
               pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::bigint,
               pg_wal_lsn_diff(flush_lsn, replay_lsn)::bigint
        FROM pg_stat_replication
        WHERE state IN ('catchup', 'streaming')
          AND NOT EXISTS (SELECT 1 FROM pg_replication_slots slot WHERE slot.active_pid = pid AND slot_type = 'logical')
        ORDER BY 1";
    let rows: Vec<(String, bool, Option<i64>, Option<i64>)> = checkup.ask(sqlx::query_as(question)).await?;
    let mut findings = Vec::new();
    for (name, is_synchronous, missing, unapplied) in rows {
        let about = format!("standby {name}");
        if let Some(bytes) = missing.filter(|bytes| *bytes > LATE_BYTES && !is_synchronous) {
            let what = format!(
                "the standby {name} lacks {} of committed data: if it takes over, those messages and effects are lost",
                size(bytes)
            );
            let mend = "find out what slows it down; synchronous_standby_names makes commits wait for it";
            findings.push(Finding::new(BEHIND, &about, what, mend));
        }
        if let Some(bytes) = unapplied.filter(|bytes| *bytes > LATE_BYTES) {
            let what = format!(
                "the standby {name} has not applied {}: reads there are stale, and a takeover takes longer",
                size(bytes)
            );
            let mend = "SELECT pg_wal_replay_resume(); on the standby, if it is paused; end long queries there";
            findings.push(Finding::new(REPLAY, &about, what, mend));
        }
    }
    Ok(findings)
}

pub(super) async fn slots(checkup: &mut Checkup<'_>) -> Result<Vec<Finding>> {
    let question = "
        SELECT slot_name::text, coalesce(wal_status, ''), pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
        FROM pg_replication_slots
        WHERE NOT temporary AND (NOT active OR wal_status IN ('lost', 'unreserved')) ORDER BY 1";
    let rows: Vec<(String, String, Option<i64>)> = checkup.ask(sqlx::query_as(question)).await?;
    let judge = |(name, status, held): (String, String, Option<i64>)| {
        let drop = format!("SELECT pg_drop_replication_slot('{name}');");
        let (rank, what, mend) = match (status.as_str(), held) {
            ("lost", _) => (
                Rank::Loss,
                format!("the replication slot {name} is lost: its reader has missed changes"),
                format!("rebuild its reader (a standby, or a copy of the tables), then {drop}"),
            ),
            ("unreserved", _) => (
                Rank::Loss,
                format!("the replication slot {name} is about to be lost: it is behind max_slot_wal_keep_size"),
                "let its reader catch up now, or raise max_slot_wal_keep_size".to_owned(),
            ),
            (_, Some(held)) => (
                Rank::Latency,
                format!(
                    "the replication slot {name} has no reader and retains {} of WAL, which grows: a full disk stops \
                     the server",
                    size(held)
                ),
                format!("start its reader, or {drop}"),
            ),
            // It retains nothing yet.
            (_, None) => return None,
        };
        Some(Finding::new((SLOT, rank), format!("replication slot {name}"), what, mend))
    };
    Ok(rows.into_iter().filter_map(judge).collect())
}
