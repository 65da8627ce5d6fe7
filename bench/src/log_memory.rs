//! Whether the memory of the process stays constant while very many messages pass through a log with retention.

use std::time::Duration;

use landfall::Broker;
use landfall::log::{Log, Options, TopicSettings};

use crate::Result;
use crate::contest::ensure_equal;
use crate::log_dedup::count;
use crate::log_fill::fill;
use crate::machine;
use crate::table::{Row, size_row};
use crate::workload::topic;

const PAYLOAD: usize = 100;
/// Disables the periodic rounds: the benchmark runs maintenance explicitly, so that it can count removed messages.
const NEVER: Duration = Duration::from_secs(24 * 3600);
/// Retention of the partition: about a million messages, so that most of those that pass are removed again.
const KEPT_BYTES: u64 = 192 * 1024 * 1024;
/// Messages between two maintenance rounds.
const MAINTENANCE_INTERVAL: u64 = 250_000;

#[allow(clippy::print_stderr, reason = "progress on a terminal")]
pub(crate) async fn measure(records: u64) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let log = Log::open(folder.path(), Options { partitions: 1, maintenance: NEVER, ..Options::default() })?;
    let settings = TopicSettings { retention_bytes: Some(KEPT_BYTES), ..TopicSettings::default() };
    log.create_topic(&topic()?, None, settings).await?;
    let (mut passed, mut removed, mut sizes) = (0, 0, Vec::new());
    for percent in [10, 50, 100] {
        while passed < records * percent / 100 {
            let more = (records * percent / 100 - passed).min(MAINTENANCE_INTERVAL);
            fill(&log, &topic()?, more, PAYLOAD, |_| ()).await?;
            passed += more;
            removed += log.maintain().await?.removed_messages;
        }
        let mebibytes = machine::resident_bytes("self")? as f64 / f64::from(1 << 20);
        eprintln!("log-memory: {passed} of {records} records have passed, {mebibytes:.0} MiB resident");
        sizes.push(mebibytes);
    }
    let kept = log.topics().await?.iter().map(|topic| topic.messages).sum::<u64>();
    ensure_equal("messages kept and removed", kept + removed, records)?;
    log.close().await?;
    let name = format!("log memory, {} × 100 B", count(records));
    let peers = ["itself after 10 %", "itself after 50 %"];
    Ok(peers.iter().zip(&sizes).map(|(peer, size)| size_row(&name, "MiB", sizes[2], peer, *size)).collect())
}
