//! What deduplication by message id costs in a topic with very many ids.

use std::time::Duration;

use async_trait::async_trait;
use landfall::TopicName;
use landfall::log::{Log, Options, TopicSettings};

use crate::Result;
use crate::contest::{self, Contestant, Sample};
use crate::log_append::{PAYLOAD, publish};
use crate::log_fill::fill;
use crate::table::{Row, rate_rows};
use crate::workload::{message, topic};

/// Only the ids matter: with this payload ten million messages take about a gigabyte.
const SMALL_PAYLOAD: usize = 16;
const BATCH: u64 = 256;

#[allow(clippy::print_stderr, reason = "progress on a terminal")]
pub(crate) async fn measure(total: Duration, ids: u64) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let log = Log::open(folder.path(), Options { partitions: 1, ..Options::default() })?;
    let (deduplicated, plain) = (topic()?, TopicName::new("copies")?);
    log.create_topic(&deduplicated, None, TopicSettings::default()).await?;
    let settings = TopicSettings { deduplicate: false, ..TopicSettings::default() };
    log.create_topic(&plain, None, settings).await?;
    let mut next = 0;
    fill(&log, &deduplicated, ids, SMALL_PAYLOAD, |stored| {
        if stored >= next {
            eprintln!("log-dedup: {stored} of {ids} ids are in the topic");
            next += ids / 10;
        }
    })
    .await?;
    let name = format!("log append, 1 KiB × {BATCH}, synced, {} live ids", count(ids));
    let mut contestants: [Box<dyn Contestant>; 2] = [
        Box::new(Append { log: log.clone(), topic: deduplicated }),
        Box::new(Append { log: log.clone(), topic: plain }),
    ];
    let samples = contest::compare(&name, total, &mut contestants).await?;
    log.close().await?;
    Ok(rate_rows(&name, "msg/s", &["the same, deduplicate = false"], &samples))
}

/// Formats a count with a unit: `10 M`, `250 k`.
pub(crate) fn count(number: u64) -> String {
    if number >= 1_000_000 { format!("{} M", number / 1_000_000) } else { format!("{} k", number / 1_000) }
}

struct Append {
    log: Log,
    topic: TopicName,
}

#[async_trait]
impl Contestant for Append {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut batch = (0..BATCH).map(|n| message(n, PAYLOAD)).collect::<Result<Vec<_>>>()?;
        batch.iter_mut().for_each(|message| message.topic = self.topic.clone());
        let (operations, elapsed) = publish(self.log.clone(), batch, length).await?;
        Ok(Sample::Rate { operations, elapsed })
    }
}
