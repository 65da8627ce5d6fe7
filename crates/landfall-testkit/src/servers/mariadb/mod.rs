//! A private MariaDB server: made with `mariadb-install-db` in a temporary folder, on 127.0.0.1 and a free port.
//!
//! Tests that only need a database call [`fresh_mysql_database`]; all of a process share one server. Tests that kill,
//! pause or restart the server start one of their own with [`private_mariadb`].

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

use super::daemon::{self, Answer, Daemon, Program};
use super::watchdog::Ending;
use setup::Binaries;

const USER: &str = "root";

/// How a private server is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariaDbOptions {
    /// Whether commits reach the disk. On by default: what tests prove about crashes is worth nothing without.
    pub fsync: bool,
    /// Further settings, as `mariadbd` takes them on its command line without the two dashes.
    pub settings: Vec<String>,
    /// Whether [`MariaDbServer::hold_log`] works. Needs a C compiler.
    pub holdable_log: bool,
}

impl Default for MariaDbOptions {
    fn default() -> Self {
        Self { fsync: true, settings: Vec::new(), holdable_log: false }
    }
}

/// A MariaDB server of this process's own. It is stopped and its folder removed when this is dropped, and also when
/// the process ends in any other way, SIGKILL included.
#[derive(Debug)]
pub struct MariaDbServer(Daemon<MariaDb>);

#[derive(Debug, Clone)]
struct MariaDb {
    binaries: Binaries,
    options: MariaDbOptions,
}

impl MariaDbServer {
    /// Makes and starts a server with the default options.
    pub async fn start() -> Result<Self> {
        Self::start_with(MariaDbOptions::default()).await
    }

    pub async fn start_with(options: MariaDbOptions) -> Result<Self> {
        let binaries = setup::find_binaries()?;
        let (folder, account) = daemon::folder("landfall-mariadb-")?;
        setup::install(&binaries, folder.path(), account).await?;
        if options.holdable_log {
            held_log::make(folder.path()).await?;
        }
        Ok(Self(Daemon::start(MariaDb { binaries, options }, folder, account).await?))
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
        database::create(&self.url("mysql")).await
    }

    /// From here on nothing reaches the disk: a commit is seen by others and not answered. For a server that was started
    /// with [`MariaDbOptions::holdable_log`].
    pub fn hold_log(&self) -> Result<()> {
        held_log::hold(self.0.folder())
    }

    /// What was held goes to the disk. To be called before a killed server is started again, too.
    pub fn release_log(&self) -> Result<()> {
        held_log::release(self.0.folder())
    }

    /// Stops the server in good order. Nothing happens if it is down.
    pub async fn stop(&self) -> Result<()> {
        self.0.stop(Signal::SIGTERM).await
    }
}

daemon::faults!(MariaDbServer, 0);

impl Program for MariaDb {
    const NAME: &'static str = "MariaDB";
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        // A socket's path is limited to 107 bytes by the kernel, and a temporary folder may be deep. The name of a
        // relative one is counted from the data folder.
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
            // Four would only wait for each other: tests share few cores.
            "innodb-purge-threads=1".into(),
            // With io_uring the kernel may still write what a killed server had asked for while its successor recovers.
            "innodb-use-native-aio=0".into(),
            format!("innodb-flush-log-at-trx-commit={flush}"),
        ];
        // Statistics that are kept are commits too, and whoever opens the table waits for them.
        let unkept = self.options.holdable_log.then(|| "innodb-stats-persistent=0".to_owned());
        let settings = settings.iter().chain(&unkept).chain(&self.options.settings);
        command.extend(settings.map(|setting| format!("--{setting}").into()));
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        answers(port).await
    }
}

async fn answers(port: u16) -> Answer {
    let connection = MySqlConnection::connect(&url(port, "mysql")).await?;
    // A failure to say goodbye is the server's own affair: it did answer.
    let _ = connection.close().await;
    Ok(())
}

fn url(port: u16, name: &str) -> String {
    format!("mysql://{USER}@127.0.0.1:{port}/{name}")
}
