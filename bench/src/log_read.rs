//! Reading a log from the page cache, compared with reading the bytes of its files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::log::{Log, Options};
use landfall::{Broker, StartAt};

use crate::Result;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::log_append::PAYLOAD;
use crate::log_fill::fill;
use crate::table::{Row, rate_rows};
use crate::workload::topic;

/// 256 MiB: larger than any processor cache, smaller than any machine's memory.
const MESSAGES: u64 = 256 * 1024;
/// Messages per call of the reader.
const AT_A_TIME: usize = 1024;

pub(crate) async fn measure(total: Duration) -> Result<Vec<Row>> {
    let name = "log read, 1 KiB, page cache";
    let folder = tempfile::tempdir()?;
    let log = Log::open(folder.path(), Options { partitions: 1, ..Options::default() })?;
    fill(&log, &topic()?, MESSAGES, PAYLOAD, |_| ()).await?;
    log.close().await?;
    drop(log);
    let log = Log::open(folder.path(), Options::default())?;
    let files = segments(folder.path())?;
    let bytes = files.iter().map(|path| Ok(path.metadata()?.len())).sum::<Result<u64>>()?;
    let mut contestants: [Box<dyn Contestant>; 2] =
        [Box::new(Landfall { log, bytes }), Box::new(RawRead { files, bytes })];
    let samples = contest::compare(name, total, &mut contestants).await?;
    Ok(rate_rows(name, "MB/s", &["read of the same files, 256 KiB at a time"], &samples))
}

fn segments(folder: &Path) -> Result<Vec<PathBuf>> {
    let partition = folder.join("topics").join(topic()?.as_str()).join("0");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(partition)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "segment") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads messages inside the process through a reader. The rate counts the bytes of the segment files.
struct Landfall {
    log: Log,
    bytes: u64,
}

#[async_trait]
impl Contestant for Landfall {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let (started, mut passes) = (Instant::now(), 0);
        while started.elapsed() < length {
            let mut reader = self.log.read(&topic()?, StartAt::Beginning).await?;
            let (mut count, mut payload_bytes) = (0, 0);
            loop {
                let messages = reader.read(AT_A_TIME).await?;
                if messages.is_empty() {
                    break;
                }
                count += messages.len() as u64;
                for stored in messages {
                    payload_bytes += stored.message?.payload.len() as u64;
                }
            }
            ensure_equal("messages read", count, MESSAGES)?;
            ensure_equal("bytes of payload read", payload_bytes, MESSAGES * PAYLOAD as u64)?;
            passes += 1;
        }
        Ok(Sample::Rate { operations: passes * self.bytes / 1_000_000, elapsed: started.elapsed() })
    }
}

/// Reads the bytes without looking at them.
struct RawRead {
    files: Vec<PathBuf>,
    bytes: u64,
}

#[async_trait]
impl Contestant for RawRead {
    async fn sample(&mut self, length: Duration) -> Result<Sample> {
        let mut buffer = vec![0; 256 * 1024];
        let (started, mut passes) = (Instant::now(), 0);
        while started.elapsed() < length {
            let mut read_bytes = 0;
            for path in &self.files {
                let mut file = File::open(path)?;
                loop {
                    match file.read(&mut buffer)? {
                        0 => break,
                        read => read_bytes += read as u64,
                    }
                }
            }
            ensure_equal("bytes read", read_bytes, self.bytes)?;
            passes += 1;
        }
        Ok(Sample::Rate { operations: passes * self.bytes / 1_000_000, elapsed: started.elapsed() })
    }
}
