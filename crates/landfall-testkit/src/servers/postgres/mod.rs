//! A private PostgreSQL server: made with `initdb` in a temporary folder, listening on 127.0.0.1 and a free port.
//!
//! Tests that only need a database call [`fresh_postgres_database`]; all of a process share one server. Tests that
//! kill, pause or restart the server start one of their own with [`private_postgres`].

mod database;
mod setup;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;

pub use database::{fresh_postgres_database, postgres, private_postgres};

use super::account::{self, Account};
use super::watchdog::Watchdog;
use crate::process::tree as process_tree;

const USER: &str = "landfall";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How a private server is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Whether commits reach the disk. On by default: what tests prove about crashes is worth nothing without.
    pub fsync: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { fsync: true }
    }
}

/// A PostgreSQL server of this process's own. It is stopped and its folder removed when this is dropped, and also
/// when the process ends in any other way, SIGKILL included.
#[derive(Debug)]
pub struct PostgresServer {
    binaries: PathBuf,
    folder: PathBuf,
    account: Option<Account>,
    options: PostgresOptions,
    port: u16,
    /// `None` while the server is down after [`PostgresServer::kill_9`].
    running: Mutex<Option<Watchdog>>,
}

impl PostgresServer {
    /// Makes and starts a server with the default options.
    pub async fn start() -> Result<Self> {
        Self::start_with(PostgresOptions::default()).await
    }

    pub async fn start_with(options: PostgresOptions) -> Result<Self> {
        let binaries = setup::find_binaries()?;
        let folder = tempfile::Builder::new()
            .prefix("landfall-pg-")
            .tempdir()
            .map_err(|error| unavailable("cannot make a temporary folder", error))?;
        let account = account::unprivileged(folder.path())?;
        if let Some(Account { uid, gid }) = account {
            std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid))
                .map_err(|error| unavailable("cannot hand the temporary folder to the server's user", error))?;
        }
        setup::initdb(&binaries, folder.path(), account).await?;
        // From here on the watchdog removes the folder. A free port may be taken before the server binds it, so a
        // server that ends at once is tried again on another port.
        let mut last = None;
        for _ in 0..5 {
            let port = free_port()?;
            let mut server = Self {
                binaries: binaries.clone(),
                folder: folder.path().to_owned(),
                account,
                options,
                port,
                running: Mutex::new(None),
            };
            match server.launch().await {
                Ok(watchdog) => {
                    *server.running.get_mut() = Some(watchdog);
                    let _removed_by_the_watchdog = folder.keep();
                    return Ok(server);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Internal, "no attempt to start PostgreSQL was made")))
    }

    /// The URL of the database `name` on this server.
    pub fn url(&self, name: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{name}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes a new, empty database and answers with its URL.
    pub async fn fresh_database(&self) -> Result<String> {
        database::create(&self.url("postgres")).await
    }

    /// Kills every process of the server with SIGKILL, as a power cut would. Nothing happens if it is down.
    pub async fn kill_9(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        let Some(watchdog) = running.take() else { return Ok(()) };
        let family = process_tree::family(watchdog.server());
        process_tree::signal(&family, Signal::SIGKILL)?;
        watchdog.stop_and_keep().await?;
        process_tree::wait_until_gone(&family).await
    }

    /// Stops the server in good order ("fast": sessions are ended, what they had not committed is rolled back). Nothing
    /// happens if it is down.
    pub async fn stop(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        let Some(watchdog) = running.take() else { return Ok(()) };
        process_tree::signal(&[watchdog.server()], Signal::SIGINT)?;
        // The watchdog would ask it to hurry.
        let stopped = process_tree::wait_until_gone(&[watchdog.server()]).await;
        watchdog.stop_and_keep().await?;
        stopped
    }

    /// Stops the server at once and without a last checkpoint ("immediate"): it recovers when it is started again.
    /// Nothing happens if it is down.
    pub async fn stop_immediately(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(watchdog) => watchdog.stop_and_keep().await,
            None => Ok(()),
        }
    }

    /// Starts the server again on the same folder and port; one that still runs is stopped first, without ceremony.
    pub async fn restart(&self) -> Result<()> {
        self.kill_9().await?;
        let mut running = self.running.lock().await;
        if running.is_none() {
            *running = Some(self.launch().await?);
        }
        Ok(())
    }

    /// Stops every process of the server with SIGSTOP: connections stay open and nobody answers.
    pub async fn pause(&self) -> Result<()> {
        self.signal_all(Signal::SIGSTOP).await
    }

    /// Lets a paused server go on.
    pub async fn resume(&self) -> Result<()> {
        self.signal_all(Signal::SIGCONT).await
    }

    async fn signal_all(&self, signal: Signal) -> Result<()> {
        match &*self.running.lock().await {
            Some(watchdog) => process_tree::signal(&process_tree::family(watchdog.server()), signal),
            None => Err(Error::new(ErrorKind::Conflict, "the PostgreSQL server is down; restart it first")),
        }
    }

    async fn launch(&self) -> Result<Watchdog> {
        let log = self.folder.join("log");
        let mut command =
            vec![self.binaries.join("postgres").into_os_string(), "-D".into(), self.folder.join("data").into()];
        for setting in self.settings() {
            command.extend(["-c".into(), setting.into()]);
        }
        let watchdog = Watchdog::start(command, &log, &self.folder, self.account)?;
        let started = Instant::now();
        loop {
            let error = match PgConnection::connect(&self.url("postgres")).await {
                Ok(connection) => {
                    // A failure to say goodbye is the server's own affair: it did answer.
                    let _ = connection.close().await;
                    return Ok(watchdog);
                }
                Err(error) => error,
            };
            if !process_tree::is_alive(watchdog.server()) || started.elapsed() > READY_WITHIN {
                let text = format!("PostgreSQL did not start; its log ends with: {}", tail(&log));
                watchdog.stop_and_keep().await?;
                return Err(unavailable(&text, error));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn settings(&self) -> Vec<String> {
        // A socket's path is limited to 107 bytes by the kernel, and a temporary folder may be deep.
        let folder = self.folder.to_string_lossy();
        let socket_folder = if folder.len() < 80 { &*folder } else { "" };
        let onoff = |value| if value { "on" } else { "off" };
        vec![
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={socket_folder}"),
            "max_connections=200".into(),
            "shared_buffers=128MB".into(),
            "wal_level=logical".into(),
            format!("fsync={}", onoff(self.options.fsync)),
            format!("synchronous_commit={}", onoff(self.options.fsync)),
        ]
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // While the server is down there is no watchdog that would do it.
        if self.running.get_mut().is_none()
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            tracing::warn!(error = %error, "the folder of a PostgreSQL test server was not removed");
        }
    }
}

fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| unavailable("there is no free port on 127.0.0.1", error))
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

fn unavailable(text: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, text).with_source(source)
}
