//! The processes of a soak, as the fault injector sees them.

use std::path::PathBuf;

use landfall::{Error, ErrorKind, Result};
use tokio::process::Command;

use super::process_config::{ProcessConfig, ProcessRole};
use crate::history::Event;
use crate::worker_process::{WorkerExit, WorkerProcess};

/// All processes: the running ones, and the events of those that exited.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    /// The configuration of all processes; role and seed differ for each.
    config: ProcessConfig,
    slots: Vec<ManagedProcess>,
    /// The events of each process that exited.
    pub histories: Vec<Vec<Event>>,
    /// Processes that exited without a signal: always a fault.
    pub failures: Vec<String>,
}

#[derive(Debug)]
struct ManagedProcess {
    role: ProcessRole,
    worker: Option<WorkerProcess>,
    is_paused: bool,
}

impl Processes {
    /// `program process JSON` runs a process.
    pub fn new(program: PathBuf, config: ProcessConfig) -> Self {
        Self { program, config, slots: Vec::new(), histories: Vec::new(), failures: Vec::new() }
    }

    pub fn add(&mut self, role: ProcessRole) -> Result<usize> {
        self.slots.push(ManagedProcess { role, worker: None, is_paused: false });
        let number = self.slots.len() - 1;
        self.start(number)?;
        Ok(number)
    }

    /// The processes that are running, not paused, and have a matching role.
    pub fn running(&self, matches: impl Fn(ProcessRole) -> bool) -> Vec<usize> {
        let runs = |process: &ManagedProcess| process.worker.is_some() && !process.is_paused && matches(process.role);
        (0..self.slots.len()).filter(|number| runs(&self.slots[*number])).collect()
    }

    /// Starts the process again unless it is running.
    pub fn start(&mut self, number: usize) -> Result<()> {
        let process = &mut self.slots[number];
        if process.worker.is_some() {
            return Ok(());
        }
        self.config.seed += 1;
        let config = ProcessConfig { role: process.role, ..self.config.clone() };
        let mut command = Command::new(&self.program);
        command.arg("process").arg(serde_json::json!(config).to_string());
        *process =
            ManagedProcess { role: process.role, worker: Some(WorkerProcess::spawn(command)?), is_paused: false };
        Ok(())
    }

    pub async fn kill(&mut self, number: usize) {
        if let Some(worker) = self.slots[number].worker.take() {
            let exit = worker.kill_after(std::time::Duration::ZERO).await;
            self.record_exit(number, exit);
        }
    }

    pub async fn pause(&mut self, number: usize) {
        if let Some(worker) = &self.slots[number].worker {
            worker.pause().await;
            self.slots[number].is_paused = true;
        }
    }

    pub fn resume(&mut self, number: usize) {
        if let Some(worker) = &self.slots[number].worker {
            worker.resume();
            self.slots[number].is_paused = false;
        }
    }

    /// Records processes that have exited without a signal. They are not restarted: the soak has failed.
    pub async fn reap(&mut self) {
        for number in 0..self.slots.len() {
            let Some(worker) = &mut self.slots[number].worker else { continue };
            if worker.has_exited().await
                && let Some(worker) = self.slots[number].worker.take()
            {
                let exit = worker.wait().await;
                self.record_exit(number, exit);
            }
        }
    }

    /// Sends SIGTERM to all processes with a matching role; each must shut down gracefully. A process that has just
    /// started does not handle the signal yet, so this waits until it is ready.
    pub async fn stop(&mut self, matches: impl Fn(ProcessRole) -> bool) {
        for number in 0..self.slots.len() {
            if !matches(self.slots[number].role) {
                continue;
            }
            let Some(mut worker) = self.slots[number].worker.take() else { continue };
            if !worker.has_exited().await {
                worker.ready().await;
            }
            let exit = worker.terminate().await;
            if exit.events.last() != Some(&Event::Stopped) {
                self.failures.push(self.describe(number, &exit));
            }
            self.histories.push(exit.events);
        }
    }

    /// Waits until all running processes are ready.
    pub async fn ready(&self) {
        for worker in self.slots.iter().filter_map(|process| process.worker.as_ref()) {
            worker.ready().await;
        }
    }

    /// The number of messages that this process knows to be committed.
    pub fn count_ok(&self, number: usize) -> usize {
        let count = |worker: &WorkerProcess| worker.count(|event| matches!(event, Event::Ok { .. }));
        self.slots[number].worker.as_ref().map_or(0, count)
    }

    pub fn is_alive(&self, number: usize) -> Result<()> {
        match &self.slots[number].worker {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Internal, self.failures.join("; "))),
        }
    }

    fn record_exit(&mut self, number: usize, exit: WorkerExit) {
        if !exit.was_killed() {
            self.failures.push(self.describe(number, &exit));
        }
        self.histories.push(exit.events);
    }

    fn describe(&self, number: usize, exit: &WorkerExit) -> String {
        let last: Vec<_> = exit.stderr.iter().rev().take(5).rev().cloned().collect();
        format!("{:?} exited with {}: {}", self.slots[number].role, exit.status, last.join(" / "))
    }
}
