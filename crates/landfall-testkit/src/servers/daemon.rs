//! The common part of all private servers: a folder, a port, a watchdog, and a process that tests kill and pause.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::account::{self, Account};
use super::watchdog::{StopSignal, Watchdog};
use crate::process::tree as process_tree;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// The result of a readiness probe: `Ok` once the server answers.
pub(super) type ProbeResult = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A kind of server: how to start it, and how to probe whether it is ready.
pub(super) trait Program: Send + Sync {
    /// Its name in messages.
    const NAME: &'static str;
    /// The signal that stops it at the end of its use.
    const STOP_SIGNAL: StopSignal;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString>;

    /// Connects once to test whether the server is ready.
    fn probe(&self, port: u16) -> impl Future<Output = ProbeResult> + Send;
}

/// A private server. It is stopped and its folder removed when this is dropped, and when the process ends in any other
/// way, SIGKILL included.
#[derive(Debug)]
pub(super) struct Daemon<P: Program> {
    program: P,
    folder: PathBuf,
    account: Option<Account>,
    port: u16,
    /// `None` while the server is down.
    running: Mutex<Option<Watchdog>>,
}

/// Creates a folder for a server's data, owned by the account that the server will run under.
pub(super) fn folder(prefix: &str) -> Result<(TempDir, Option<Account>)> {
    let folder = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir()
        .map_err(|error| unavailable("cannot create a temporary folder", error))?;
    let account = account::unprivileged(folder.path())?;
    if let Some(Account { uid, gid }) = account {
        std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).map_err(|error| {
            unavailable("cannot change the owner of the temporary folder to the server's user", error)
        })?;
    }
    Ok((folder, account))
}

/// Waits until something accepts connections on `port`.
pub(super) async fn listening(port: u16) -> Result<()> {
    let started = Instant::now();
    while let Err(error) = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        if started.elapsed() > READY_WITHIN {
            return Err(unavailable("the server does not listen on all of its ports", error));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

impl<P: Program> Daemon<P> {
    /// Starts `program` on a prepared folder. From then on the watchdog is responsible for removing the folder.
    pub(super) async fn start(program: P, folder: TempDir, account: Option<Account>) -> Result<Self> {
        // Another process may bind the port first, so a server that exits at once is started again on another port.
        let mut last = None;
        let mut daemon =
            Self { program, folder: folder.path().to_owned(), account, port: 0, running: Mutex::new(None) };
        for _ in 0..5 {
            daemon.port = free_port()?;
            match daemon.launch().await {
                Ok(watchdog) => {
                    *daemon.running.get_mut() = Some(watchdog);
                    let _removed_by_the_watchdog = folder.keep();
                    return Ok(daemon);
                }
                Err(error) => last = Some(error),
            }
        }
        let not_tried = || Error::new(ErrorKind::Internal, format!("no attempt to start {} was made", P::NAME));
        Err(last.unwrap_or_else(not_tried))
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn program(&self) -> &P {
        &self.program
    }

    /// The folder with its data.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Kills every process of the server with SIGKILL, as a crash would. Does nothing if it is down.
    pub(super) async fn kill_9(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        let Some(watchdog) = running.take() else { return Ok(()) };
        let family = process_tree::family(watchdog.server());
        process_tree::signal(&family, Signal::SIGKILL)?;
        watchdog.stop_and_keep().await?;
        process_tree::wait_until_gone(&family).await
    }

    /// Sends `signal` to shut the server down gracefully, and waits for its exit. Does nothing if it is down.
    pub(super) async fn stop(&self, signal: Signal) -> Result<()> {
        let mut running = self.running.lock().await;
        let Some(watchdog) = running.take() else { return Ok(()) };
        process_tree::signal(&[watchdog.server()], signal)?;
        // Before the watchdog is stopped, which would send its own signal.
        let stopped = process_tree::wait_until_gone(&[watchdog.server()]).await;
        watchdog.stop_and_keep().await?;
        stopped
    }

    /// Stops the server with its [`StopSignal`]. Does nothing if it is down.
    pub(super) async fn stop_immediately(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(watchdog) => watchdog.stop_and_keep().await,
            None => Ok(()),
        }
    }

    /// Starts the server again on the same folder and port. A running server is killed first.
    pub(super) async fn restart(&self) -> Result<()> {
        self.kill_9().await?;
        let mut running = self.running.lock().await;
        if running.is_none() {
            *running = Some(self.launch().await?);
        }
        Ok(())
    }

    /// Sends `signal` to every process of the server.
    pub(super) async fn signal(&self, signal: Signal) -> Result<()> {
        process_tree::signal(&self.family().await?, signal)
    }

    /// Stops every process of the server with SIGSTOP, and returns once all are stopped.
    pub(super) async fn pause(&self) -> Result<()> {
        process_tree::pause(&self.family().await?).await
    }

    /// Returns all processes of the server, which must be up.
    async fn family(&self) -> Result<Vec<i32>> {
        match &*self.running.lock().await {
            Some(watchdog) => Ok(process_tree::family(watchdog.server())),
            None => {
                let text = format!("the {} server is down; restart it first", P::NAME);
                Err(Error::new(ErrorKind::Conflict, text))
            }
        }
    }

    async fn launch(&self) -> Result<Watchdog> {
        let log = self.folder.join("log");
        let command = self.program.command(&self.folder, self.port);
        let watchdog = Watchdog::start(command, &log, &self.folder, self.account, P::STOP_SIGNAL)?;
        let started = Instant::now();
        loop {
            let error = match self.program.probe(self.port).await {
                // Another server may have got the port and answer in its place.
                Ok(()) if process_tree::is_alive(watchdog.server()) => return Ok(watchdog),
                Ok(()) => "another server answers on its port".into(),
                Err(error) => error,
            };
            if !process_tree::is_alive(watchdog.server()) || started.elapsed() > READY_WITHIN {
                let text = format!("{} did not start; its log ends with: {}", P::NAME, tail(&log));
                watchdog.stop_and_keep().await?;
                return Err(unavailable(&text, error));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl<P: Program> Drop for Daemon<P> {
    fn drop(&mut self) {
        // While the server is down there is no watchdog to remove the folder.
        if self.running.get_mut().is_none()
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            tracing::warn!(%error, server = P::NAME, "failed to remove the folder of a test server");
        }
    }
}

/// Returns a free port. Never returns a port twice in one process, because a server may take seconds to bind it.
pub(super) fn free_port() -> Result<u16> {
    static RESERVED: std::sync::Mutex<BTreeSet<u16>> = std::sync::Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = listener.map_err(|error| unavailable("cannot find a free port on 127.0.0.1", error))?.port();
        if RESERVED.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// Finds the program `name` in `PATH` or in Debian's folders. The error names the Debian `package` that contains it.
pub(super) fn find_program(name: &str, package: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("{name} is not installed; on Debian: apt install {package}"))
    })
}

/// Returns the folder where `scripts/services` installs servers that Debian does not package. Other accounts can read
/// it.
pub fn services_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("LANDFALL_SERVICES") {
        return folder;
    }
    let home = || set("HOME").unwrap_or_default();
    match nix::unistd::geteuid().is_root() {
        true => "/var/cache/landfall/services".into(),
        false => set("XDG_CACHE_HOME").unwrap_or_else(|| home().join(".cache")).join("landfall/services"),
    }
}

pub(super) fn unavailable(text: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Unavailable, text).with_source(source)
}

/// Implements the faults that tests inject, for a server type that wraps a [`Daemon`].
macro_rules! faults {
    ($server:ty, $daemon:tt) => {
        impl $server {
            /// Kills every process of the server with SIGKILL, as a crash would. Does nothing if it is down.
            pub async fn kill_9(&self) -> landfall_core::Result<()> {
                self.$daemon.kill_9().await
            }

            /// Starts the server again on the same folder and port. A running server is killed first.
            pub async fn restart(&self) -> landfall_core::Result<()> {
                self.$daemon.restart().await
            }

            /// Stops every process of the server with SIGSTOP: connections stay open without responses.
            pub async fn pause(&self) -> landfall_core::Result<()> {
                self.$daemon.pause().await
            }

            /// Resumes a paused server.
            pub async fn resume(&self) -> landfall_core::Result<()> {
                self.$daemon.signal(nix::sys::signal::Signal::SIGCONT).await
            }
        }
    };
}
pub(super) use faults;
