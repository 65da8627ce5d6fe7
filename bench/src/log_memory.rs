//! Whether the memory of the process stays as it is while very many messages pass through a log that removes the old
//! ones.

use landfall::log::{Log, Options, TopicSettings};

use crate::Result;
use crate::log_dedup::count;
use crate::log_supply::fill;
use crate::machine;
use crate::table::{Row, size_row};
use crate::workload::topic;

const PAYLOAD: usize = 100;
/// What the partition keeps: about a million messages, so that most of those that pass are removed again.
const KEPT_BYTES: u64 = 192 * 1024 * 1024;
/// Old segments are removed after so many messages.
const MAINTAINED: u64 = 250_000;

#[allow(clippy::print_stderr, reason = "progress is for the person who waits")]
pub(crate) async fn measure(records: u64) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let log = Log::open(folder.path(), Options { partitions: 1, ..Options::default() })?;
    let settings = TopicSettings { retention_bytes: Some(KEPT_BYTES), ..TopicSettings::default() };
    log.create_topic(&topic()?, None, settings).await?;
    let (mut passed, mut sizes) = (0, Vec::new());
    for percent in [10, 50, 100] {
        while passed < records * percent / 100 {
            let more = (records * percent / 100 - passed).min(MAINTAINED);
            fill(&log, &topic()?, more, PAYLOAD, |_| ()).await?;
            passed += more;
        }
        let mebibytes = machine::resident_bytes()? as f64 / f64::from(1 << 20);
        eprintln!("log-memory: {passed} of {records} records have passed, {mebibytes:.0} MiB resident");
        sizes.push(mebibytes);
    }
    log.close().await?;
    let name = format!("log memory, {} × 100 B", count(records));
    let peers = ["itself after 10 %", "itself after 50 %"];
    Ok(peers.iter().zip(&sizes).map(|(peer, size)| size_row(&name, "MiB", sizes[2], peer, *size)).collect())
}
