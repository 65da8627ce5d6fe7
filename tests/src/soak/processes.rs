//! The processes of a soak, as the fault injector sees them.

use std::path::PathBuf;

use landfall::{Error, ErrorKind, Result};
use landfall_testkit::eventually;
use tokio::process::Command;

use super::broker::BrokerLocation;
use super::process_config::{ProcessConfig, ProcessRole};
use crate::history::Event;
use crate::worker_process::{TIMEOUT, WorkerExit, WorkerProcess};

/// All processes: the running ones, and the events of those that exited.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    /// The current folder of the daemons, with their `landfall.toml`.
    folder: PathBuf,
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
    /// `program process JSON` runs a process. The program `landfall` beside it runs a daemon.
    pub fn new(program: PathBuf, folder: PathBuf, config: ProcessConfig) -> Self {
        Self { program, folder, config, slots: Vec::new(), histories: Vec::new(), failures: Vec::new() }
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
        let role = self.slots[number].role;
        if self.slots[number].worker.is_some() {
            return Ok(());
        }
        let command = match role {
            ProcessRole::Daemon => self.daemon()?,
            _ => self.process(role),
        };
        self.slots[number] = ManagedProcess { role, worker: Some(WorkerProcess::spawn(command)?), is_paused: false };
        Ok(())
    }

    fn process(&mut self, role: ProcessRole) -> Command {
        self.config.seed += 1;
        let config = ProcessConfig { role, ..self.config.clone() };
        let mut command = Command::new(&self.program);
        command.arg("process").arg(serde_json::json!(config).to_string());
        command
    }

    /// The daemon with its defaults, except its addresses, its subscription and a short lease.
    fn daemon(&self) -> Result<Command> {
        let BrokerLocation::Server(_, broker_url) = &self.config.broker else {
            return Err(Error::invalid("a daemon cannot publish to the in-memory broker"));
        };
        let program = self.program.with_file_name("landfall");
        if !program.is_file() {
            let build = "cargo build -p landfall-cli --features full, with --release if the soak was built with it";
            let text = format!("the daemon {} is missing; build it: {build}", program.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--broker-url", broker_url]);
        command.args(["--database-url", &self.config.producer]);
        command.env("LANDFALL_RELAY_LEASE_MS", self.config.lease_ms.to_string());
        command.env("LANDFALL_RELAY_ORDER", self.config.order.as_str());
        command.current_dir(&self.folder);
        Ok(command)
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
                wait_until_ready(self.slots[number].role, &worker).await;
            }
            let exit = worker.terminate().await;
            if !exit.status.success() {
                self.failures.push(self.describe(number, &exit));
            }
            self.histories.push(exit.events);
        }
    }

    /// Waits until all running processes are ready.
    pub async fn ready(&self) {
        for process in &self.slots {
            if let Some(worker) = &process.worker {
                wait_until_ready(process.role, worker).await;
            }
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

    /// What the running consumers have logged last, for a run that did not drain.
    pub fn consumer_logs(&self) -> Vec<String> {
        let consumers = self.slots.iter().filter(|process| process.role == ProcessRole::Consume);
        let last = |process: &ManagedProcess| process.worker.as_ref().map(|worker| worker.last_logged(30).join("\n"));
        consumers.filter_map(last).map(|lines| format!("a running consumer has logged:\n{lines}")).collect()
    }

    fn describe(&self, number: usize, exit: &WorkerExit) -> String {
        let last: Vec<_> = exit.stderr.iter().rev().take(5).rev().cloned().collect();
        format!("{:?} exited with {}: {}", self.slots[number].role, exit.status, last.join(" / "))
    }
}

async fn wait_until_ready(role: ProcessRole, worker: &WorkerProcess) {
    match role {
        ProcessRole::Daemon => {
            let is_ready = async || match worker.first_logged("landfall: ") {
                Some(line) => {
                    assert!(line.starts_with("landfall: ready on "), "the daemon did not start: {line}");
                    true
                }
                None => false,
            };
            eventually(TIMEOUT, "the daemon is ready", is_ready).await;
        }
        _ => worker.ready().await,
    }
}
