//! Describes the machine: figures mean nothing without it.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Result;

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_gib: f64,
    /// Median of one 4 KiB append with `fdatasync`: a lower bound for any single durable write.
    pub(crate) sync_us: f64,
    /// Load average of the last minute when the run began.
    pub(crate) load: f64,
}

/// Describes the machine. Fields that need Linux's `/proc` stay empty on other systems.
#[allow(clippy::print_stderr, reason = "warnings on a terminal")]
pub(crate) fn describe() -> Result<Machine> {
    let processor = proc_field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into());
    let memory = proc_field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let machine = Machine {
        cores: std::thread::available_parallelism()?.get(),
        processor,
        memory_gib: memory.unwrap_or_default() / (1024.0 * 1024.0),
        sync_us: sync_time()?.as_secs_f64() * 1e6,
        load: load.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or_default(),
    };
    if machine.load > machine.cores as f64 / 2.0 {
        eprintln!("warning: the machine is busy (load {:.1}); ratios are more reliable than rates", machine.load);
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; use cargo run --release -p landfall-bench");
    }
    Ok(machine)
}

impl Machine {
    pub(crate) fn sentence(&self) -> String {
        let Machine { cores, processor, memory_gib, sync_us, load } = self;
        format!(
            "{cores} cores ({processor}), {memory_gib:.0} GiB, 4 KiB append + fdatasync {sync_us:.0} µs, \
             load {load:.1} at the start"
        )
    }
}

/// Resident memory of a process (its id, or `self`), as Linux reports it.
pub(crate) fn resident_bytes(process: &str) -> Result<u64> {
    let field = proc_field(&format!("/proc/{process}/status"), "VmRSS")
        .ok_or("this system does not report resident memory in /proc")?;
    Ok(field.trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn proc_field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn sync_time() -> Result<Duration> {
    let mut file: File = tempfile::tempfile()?;
    let block = [b'x'; 4096];
    let mut times = Vec::new();
    for _ in 0..200 {
        let started = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}
