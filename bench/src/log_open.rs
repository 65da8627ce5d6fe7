//! How long a log of 1 GiB takes to open after SIGKILL, compared with reading all of its bytes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall::Broker;
use landfall::log::{Log, Options};

use crate::Result;
use crate::contest::{self, Contestant, Sample, ensure_equal};
use crate::log_fill::fill;
use crate::table::{Row, latency_rows};
use crate::workload::topic;

const PAYLOAD: usize = 1024;
const MESSAGES: u64 = 1_000_000;

pub(crate) async fn measure(total: Duration) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let (live, killed) = (folder.path().join("live"), folder.path().join("killed"));
    let log = Log::open(&live, Options::default())?;
    fill(&log, &topic()?, MESSAGES, PAYLOAD, |_| ()).await?;
    // The state after a kill: the files of an open log, with their preallocated space.
    copy(&live, &killed)?;
    log.close().await?;
    let mut contestants: [Box<dyn Contestant + '_>; 2] =
        [Box::new(Opening { killed: &killed, folder: folder.path() }), Box::new(Reading { killed: &killed })];
    let name = "log open after SIGKILL, 1 GiB";
    let samples = contest::compare(name, total, &mut contestants).await?;
    Ok(latency_rows(name, &["reading all of it"], &samples))
}

struct Opening<'a> {
    killed: &'a Path,
    folder: &'a Path,
}

#[async_trait]
impl Contestant for Opening<'_> {
    async fn sample(&mut self, _length: Duration) -> Result<Sample> {
        // Every sample needs a fresh copy, because opening a log repairs it.
        let copied = tempfile::tempdir_in(self.folder)?;
        copy(self.killed, copied.path())?;
        let started = Instant::now();
        let log = Log::open(copied.path(), Options::default())?;
        let elapsed = started.elapsed();
        ensure_equal("messages", log.topics().await?.iter().map(|topic| topic.messages).sum(), MESSAGES)?;
        log.close().await?;
        Ok(Sample::Latencies(vec![elapsed]))
    }
}

struct Reading<'a> {
    killed: &'a Path,
}

#[async_trait]
impl Contestant for Reading<'_> {
    async fn sample(&mut self, _length: Duration) -> Result<Sample> {
        let started = Instant::now();
        let bytes = read(self.killed)?;
        let elapsed = started.elapsed();
        if bytes < MESSAGES * PAYLOAD as u64 {
            return Err(format!("only {bytes} bytes were read").into());
        }
        Ok(Sample::Latencies(vec![elapsed]))
    }
}

fn read(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        bytes += if path.is_dir() { read(&path)? } else { fs::read(&path)?.len() as u64 };
    }
    Ok(bytes)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy(&path, &target)?,
            false => drop(fs::copy(&path, &target)?),
        }
    }
    Ok(())
}
