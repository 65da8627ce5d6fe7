//! A private MariaDB server: created by `mariadb-install-db` in a temporary folder, on 127.0.0.1 and a free port.
//!
//! Tests that only need a database call [`fresh_mysql_database`]; all tests of a process share one server. Tests that
//! kill, pause or restart the server start their own with [`private_mariadb`].

mod database;
mod held_log;
mod mysql;
mod setup;

use std::ffi::OsString;
use std::path::Path;

use landfall_core::Result;
use nix::sys::signal::Signal;
use sqlx::{Connection, MySqlConnection};

pub use database::{fresh_mysql_database, mariadb, private_mariadb, private_mariadb_with};
pub use mysql::fresh_database_on_mysql;

use super::daemon::{self, Daemon, ProbeResult, Program};
use super::watchdog::StopSignal;
use setup::Binaries;

const USER: &str = "root";

/// The configuration of a private server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariaDbOptions {
    /// Whether commits are synced to disk. On by default: crash tests prove nothing without.
    pub fsync: bool,
    /// Additional options of `mariadbd`, without the leading dashes.
    pub settings: Vec<String>,
    /// Whether [`MariaDbServer::hold_log`] works. Requires a C compiler.
    pub holdable_log: bool,
}

impl Default for MariaDbOptions {
    fn default() -> Self {
        Self { fsync: true, settings: Vec::new(), holdable_log: false }
    }
}

/// A private MariaDB server. It is stopped and its folder removed when this is dropped, and when the process ends in
/// any other way, SIGKILL included.
#[derive(Debug)]
pub struct MariaDbServer(Daemon<MariaDb>);

#[derive(Debug, Clone)]
struct MariaDb {
    binaries: Binaries,
    options: MariaDbOptions,
}

impl MariaDbServer {
    /// Creates and starts a server with the default options.
    pub async fn start() -> Result<Self> {
        Self::start_with(MariaDbOptions::default()).await
    }

    pub async fn start_with(options: MariaDbOptions) -> Result<Self> {
        let binaries = setup::find_binaries()?;
        let (folder, account) = daemon::folder("landfall-mariadb-")?;
        setup::install(&binaries, folder.path(), account).await?;
        if options.holdable_log {
            held_log::compile(folder.path()).await?;
        }
        Ok(Self(Daemon::start(MariaDb { binaries, options }, folder, account).await?))
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
        database::create(&self.url("mysql")).await
    }

    /// Blocks all writes to InnoDB's log: commits become visible to other sessions but do not return.
    ///
    /// The server must have been started with [`MariaDbOptions::holdable_log`].
    pub fn hold_log(&self) -> Result<()> {
        held_log::hold(self.0.folder())
    }

    /// Unblocks the log. Must also be called before a killed server is restarted.
    pub fn release_log(&self) -> Result<()> {
        held_log::release(self.0.folder())
    }

    /// Shuts the server down gracefully. Does nothing if it is down.
    pub async fn stop(&self) -> Result<()> {
        self.0.stop(Signal::SIGTERM).await
    }
}

daemon::faults!(MariaDbServer, 0);

impl Program for MariaDb {
    const NAME: &'static str = "MariaDB";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        // The kernel limits a socket's path to 107 bytes, and a temporary folder may be deep. A relative socket path
        // is relative to the data folder.
        let mut command = Vec::new();
        if self.options.holdable_log {
            command.extend(held_log::prefix(folder));
        }
        command.extend([self.binaries.server.clone().into_os_string(), "--no-defaults".into()]);
        let flush = if self.options.fsync { "1" } else { "2" };
        let settings = [
            format!("datadir={}", folder.join("data").display()),
            format!("tmpdir={}", folder.display()),
            "socket=socket".into(),
            format!("pid-file={}", folder.join("pid").display()),
            format!("port={port}"),
            "bind-address=127.0.0.1".into(),
            "skip-name-resolve".into(),
            "max-connections=200".into(),
            // Tests share few cores: the default of four threads would only contend.
            "innodb-purge-threads=1".into(),
            // With io_uring the kernel may complete writes of a killed server while its successor recovers.
            "innodb-use-native-aio=0".into(),
            format!("innodb-flush-log-at-trx-commit={flush}"),
        ];
        // Persistent statistics commit too, and opening a table waits for them.
        let transient_stats = self.options.holdable_log.then(|| "innodb-stats-persistent=0".to_owned());
        let settings = settings.iter().chain(&transient_stats).chain(&self.options.settings);
        command.extend(settings.map(|setting| format!("--{setting}").into()));
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        probe(port).await
    }
}

async fn probe(port: u16) -> ProbeResult {
    let connection = MySqlConnection::connect(&url(port, "mysql")).await?;
    // The server has answered; a failed close does not matter.
    let _ = connection.close().await;
    Ok(())
}

fn url(port: u16, name: &str) -> String {
    format!("mysql://{USER}@127.0.0.1:{port}/{name}")
}
