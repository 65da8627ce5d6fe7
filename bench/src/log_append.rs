//! What the embedded log adds to writing bytes and syncing them: batches of 256 by one publisher and by four, and
//! single messages.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::log::{Log, Options};
use landfall::{Broker, Message, MessageId, Publisher};
use tokio::task::JoinSet;

use crate::Result;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::table::{Row, rate_rows};
use crate::workload::message;

pub(crate) const PAYLOAD: usize = 1024;

pub(crate) async fn measure(total: Duration) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (batch, publishers) in [(256, 1), (256, 4), (1, 1)] {
        let by = if publishers == 1 { "" } else { ", 4 publishers" };
        let name = format!("log append, 1 KiB × {batch}{by}, synced");
        let mut contestants: [Box<dyn Contestant>; 3] = [
            Box::new(Landfall { batch, publishers }),
            Box::new(RawWrite { batch, zeroed_bytes: 0 }),
            Box::new(RawWrite { batch, zeroed_bytes: 64 * 1024 * 1024 }),
        ];
        let samples = contest::compare(&name, total, &mut contestants).await?;
        let peers = ["write + fdatasync, growing file", "write + fdatasync, over zeros"];
        rows.extend(rate_rows(&name, "msg/s", &peers, &samples));
    }
    Ok(rows)
}

/// Uses one partition: a batch spread over four files needs four syncs, and the peer does one.
struct Landfall {
    batch: usize,
    publishers: usize,
}

#[async_trait]
impl Contestant for Landfall {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let folder = tempfile::tempdir()?;
        let log = Log::open(folder.path(), Options { partitions: 1, ..Options::default() })?;
        // Creates the topic and preallocates its first segment; the raw file also exists before its measurement.
        log.publish(&[message(0, PAYLOAD)?]).await;
        let batch = || (0..self.batch as u64).map(|n| message(n, PAYLOAD)).collect::<Result<Vec<Message>>>();
        let (mut operations, mut elapsed) = (0, Duration::ZERO);
        let mut publishers = JoinSet::new();
        if self.publishers == 1 {
            // Runs in the waiting thread, as the raw write does: a separate task would add the scheduler's wake-up.
            (operations, elapsed) = publish(log.clone(), batch()?, length).await?;
        } else {
            for _ in 0..self.publishers {
                publishers.spawn(publish(log.clone(), batch()?, length));
            }
        }
        while let Some(published) = publishers.join_next().await {
            let (count, took) = published??;
            operations += count;
            elapsed = elapsed.max(took);
        }
        let stored = log.topics().await?.iter().map(|topic| topic.messages).sum();
        ensure_equal("messages in the log", stored, operations + 1)?;
        Ok(Sample::Rate { operations, elapsed })
    }
}

/// Publishes `batch` repeatedly for about `length`. Returns the number of messages and the time it took.
///
/// Creating new ids is the sender's work, so it is not measured.
pub(crate) async fn publish(log: Log, mut batch: Vec<Message>, length: Duration) -> Result<(u64, Duration)> {
    let (mut operations, mut elapsed) = (0, Duration::ZERO);
    while elapsed < length {
        for message in &mut batch {
            message.id = MessageId::new();
        }
        let started = Instant::now();
        let outcomes = log.publish(&batch).await;
        elapsed += started.elapsed();
        if let Some(outcome) = outcomes.iter().find(|outcome| !outcome.is_accepted()) {
            return Err(format!("the log did not accept a message: {outcome:?}").into());
        }
        operations += outcomes.len() as u64;
    }
    Ok((operations, elapsed))
}

/// Writes the payloads alone, without header, checksum or index. In a growing file every sync also writes the new
/// length. A file filled with zeros beforehand avoids that: the lowest cost of durability on this disk.
struct RawWrite {
    batch: usize,
    zeroed_bytes: u64,
}

#[async_trait]
impl Contestant for RawWrite {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let bytes = vec![b'x'; self.batch * PAYLOAD];
        let mut file = self.file()?;
        let started = Instant::now();
        let (mut operations, mut position) = (0, 0);
        while started.elapsed() < length {
            if self.zeroed_bytes > 0 && position + bytes.len() as u64 > self.zeroed_bytes {
                file.rewind()?;
                position = 0;
            }
            file.write_all(&bytes)?;
            file.sync_data()?;
            position += bytes.len() as u64;
            operations += self.batch as u64;
        }
        let elapsed = started.elapsed();
        if self.zeroed_bytes == 0 {
            ensure_equal("bytes in the file", file.metadata()?.len(), operations * PAYLOAD as u64)?;
        }
        Ok(Sample::Rate { operations, elapsed })
    }
}

impl RawWrite {
    fn file(&self) -> Result<File> {
        let mut file = tempfile::tempfile()?;
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), self.zeroed_bytes), &mut file)?;
        file.rewind()?;
        file.sync_all()?;
        Ok(file)
    }
}
