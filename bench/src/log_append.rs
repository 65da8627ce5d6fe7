//! What the embedded log adds to writing bytes and syncing them: batches of 256 by one publisher and by four, and one
//! message at a time.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::log::{Log, Options};
use landfall::{Broker, Message, MessageId, Publisher};
use tokio::task::JoinSet;

use crate::Result;
use crate::contest::{self, Contestant, Turn, ensure_equal};
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
        let turns = contest::hold(&name, total, &mut contestants).await?;
        let peers = ["write + fdatasync, growing file", "write + fdatasync, over zeros"];
        rows.extend(rate_rows(&name, "msg/s", &peers, &turns));
    }
    Ok(rows)
}

/// One partition, since a batch that is spread over four files is four syncs and would be compared with one.
struct Landfall {
    batch: usize,
    publishers: usize,
}

#[async_trait]
impl Contestant for Landfall {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
        let folder = tempfile::tempdir()?;
        let log = Log::open(folder.path(), Options { partitions: 1, ..Options::default() })?;
        // The topic, its first segment and the room in it: the raw file is there before its turn begins, too.
        log.publish(&[message(0, PAYLOAD)?]).await;
        let batch = || (0..self.batch as u64).map(|n| message(n, PAYLOAD)).collect::<Result<Vec<Message>>>();
        let (mut operations, mut elapsed) = (0, Duration::ZERO);
        let mut publishers = JoinSet::new();
        if self.publishers == 1 {
            // In the thread that waits for it, like the raw file: a task of its own would add the scheduler's wake-up.
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
        Ok(Turn::Rate { operations, elapsed })
    }
}

/// Publishes `batch` again and again, for about `length`; how many messages that were, and how long it took.
///
/// New ids are the sender's work, so they are made outside the time that counts.
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

/// The payloads alone, without a header, a checksum or an index. A file that grows makes every sync write its new
/// length too; one that was filled with zeros before does not, which is as cheap as this disk can be durable.
struct RawWrite {
    batch: usize,
    zeroed_bytes: u64,
}

#[async_trait]
impl Contestant for RawWrite {
    async fn turn(&mut self, length: Duration) -> Result<Turn> {
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
        Ok(Turn::Rate { operations, elapsed })
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
