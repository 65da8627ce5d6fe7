//! A private PostgreSQL server: created by `initdb` in a temporary folder, on 127.0.0.1 and a free port.
//!
//! Tests that only need a database call [`fresh_postgres_database`]; all tests of a process share one server. Tests
//! that kill, pause or restart the server start their own with [`private_postgres`].

mod database;
mod setup;
mod standby;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::Result;
use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};

pub use database::{fresh_postgres_database, postgres, private_postgres};

use super::daemon::{self, Daemon, ProbeResult, Program};
use super::watchdog::StopSignal;

const USER: &str = "landfall";

/// The configuration of a private server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Whether commits are synced to disk. On by default: crash tests prove nothing without.
    pub fsync: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { fsync: true }
    }
}

/// A private PostgreSQL server. It is stopped and its folder removed when this is dropped, and when the process ends in
/// any other way, SIGKILL included.
#[derive(Debug)]
pub struct PostgresServer(Daemon<Postgres>);

#[derive(Debug, Clone)]
struct Postgres {
    binaries: PathBuf,
    options: PostgresOptions,
}

impl PostgresServer {
    /// Creates and starts a server with the default options.
    pub async fn start() -> Result<Self> {
        Self::start_with(PostgresOptions::default()).await
    }

    pub async fn start_with(options: PostgresOptions) -> Result<Self> {
        let binaries = setup::find_binaries()?;
        let (folder, account) = daemon::folder("landfall-pg-")?;
        setup::initdb(&binaries, folder.path(), account).await?;
        Ok(Self(Daemon::start(Postgres { binaries, options }, folder, account).await?))
    }

    /// Returns the URL of the database `name` on this server.
    pub fn url(&self, name: &str) -> String {
        url(self.port(), name)
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Creates an empty database and returns its URL.
    pub async fn fresh_database(&self) -> Result<String> {
        database::create(&self.url("postgres")).await
    }

    /// Shuts the server down in "fast" mode: ends sessions and rolls back open transactions. Does nothing if it is
    /// down.
    pub async fn stop(&self) -> Result<()> {
        self.0.stop(Signal::SIGINT).await
    }

    /// Shuts the server down in "immediate" mode, without a checkpoint: the next start runs recovery. Does nothing if
    /// it is down.
    pub async fn stop_immediately(&self) -> Result<()> {
        self.0.stop_immediately().await
    }
}

daemon::faults!(PostgresServer, 0);

impl Program for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const STOP_SIGNAL: StopSignal = StopSignal::Quit;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command =
            vec![self.binaries.join("postgres").into_os_string(), "-D".into(), folder.join("data").into()];
        for setting in self.settings(folder, port) {
            command.extend(["-c".into(), setting.into()]);
        }
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        let connection = PgConnection::connect(&url(port, "postgres")).await?;
        // The server has answered; a failed close does not matter.
        let _ = connection.close().await;
        Ok(())
    }
}

impl Postgres {
    fn settings(&self, folder: &Path, port: u16) -> Vec<String> {
        // The kernel limits a socket's path to 107 bytes, and a temporary folder may be deep.
        let folder = folder.to_string_lossy();
        let socket_folder = if folder.len() < 80 { &*folder } else { "" };
        let onoff = |value| if value { "on" } else { "off" };
        vec![
            format!("port={port}"),
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

fn url(port: u16, name: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/{name}")
}
