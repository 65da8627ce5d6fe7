//! A private PostgreSQL server: made with `initdb` in a temporary folder, listening on 127.0.0.1 and a free port.
//!
//! Tests that only need a database call [`fresh_postgres_database`]; all of a process share one server. Tests that
//! kill, pause or restart the server start one of their own with [`private_postgres`].

mod database;
mod setup;
mod standby;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::Result;
use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};

pub use database::{fresh_postgres_database, postgres, private_postgres};

use super::daemon::{self, Answer, Daemon, Program};
use super::watchdog::Ending;

const USER: &str = "landfall";

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
pub struct PostgresServer(Daemon<Postgres>);

#[derive(Debug, Clone)]
struct Postgres {
    binaries: PathBuf,
    options: PostgresOptions,
}

impl PostgresServer {
    /// Makes and starts a server with the default options.
    pub async fn start() -> Result<Self> {
        Self::start_with(PostgresOptions::default()).await
    }

    pub async fn start_with(options: PostgresOptions) -> Result<Self> {
        let binaries = setup::find_binaries()?;
        let (folder, account) = daemon::folder("landfall-pg-")?;
        setup::initdb(&binaries, folder.path(), account).await?;
        Ok(Self(Daemon::start(Postgres { binaries, options }, folder, account).await?))
    }

    /// The URL of the database `name` on this server.
    pub fn url(&self, name: &str) -> String {
        url(self.port(), name)
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Makes a new, empty database and answers with its URL.
    pub async fn fresh_database(&self) -> Result<String> {
        database::create(&self.url("postgres")).await
    }

    /// Stops the server in good order ("fast": sessions are ended, what they had not committed is rolled back). Nothing
    /// happens if it is down.
    pub async fn stop(&self) -> Result<()> {
        self.0.stop(Signal::SIGINT).await
    }

    /// Stops the server at once and without a last checkpoint ("immediate"): it recovers when it is started again.
    /// Nothing happens if it is down.
    pub async fn stop_immediately(&self) -> Result<()> {
        self.0.stop_immediately().await
    }
}

daemon::faults!(PostgresServer, 0);

impl Program for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const ENDING: Ending = Ending::Quit;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command =
            vec![self.binaries.join("postgres").into_os_string(), "-D".into(), folder.join("data").into()];
        for setting in self.settings(folder, port) {
            command.extend(["-c".into(), setting.into()]);
        }
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        let connection = PgConnection::connect(&url(port, "postgres")).await?;
        // A failure to say goodbye is the server's own affair: it did answer.
        let _ = connection.close().await;
        Ok(())
    }
}

impl Postgres {
    fn settings(&self, folder: &Path, port: u16) -> Vec<String> {
        // A socket's path is limited to 107 bytes by the kernel, and a temporary folder may be deep.
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
