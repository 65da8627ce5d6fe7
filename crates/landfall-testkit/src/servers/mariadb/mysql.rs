//! A private MySQL, for tests that must run on MySQL as well as on MariaDB.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;

use super::database;
use crate::not_run::{current_test, not_run};
use crate::servers::account::Account;
use crate::servers::daemon::{self, Daemon, ProbeResult, Program, services_folder};
use crate::servers::watchdog::StopSignal;

/// A private MySQL server, stopped when the process ends.
#[derive(Debug)]
struct MySqlServer(Daemon<Mysqld>);

#[derive(Debug)]
struct Mysqld(PathBuf);

/// Creates an empty database on the MySQL server shared by all tests of this process, and returns its URL.
///
/// Returns `None` if MySQL is not installed, after calling [`not_run()`].
pub async fn fresh_database_on_mysql() -> Option<String> {
    static SHARED: OnceCell<std::result::Result<MySqlServer, String>> = OnceCell::const_new();
    let server = SHARED.get_or_init(async || MySqlServer::start().await.map_err(|error| error.to_string())).await;
    let created = match server {
        Ok(server) => database::create(&super::url(server.0.port(), "mysql")).await.map_err(|error| error.to_string()),
        Err(reason) => Err(reason.clone()),
    };
    created.map_err(|reason| not_run(&current_test(), &reason)).ok()
}

impl MySqlServer {
    async fn start() -> Result<Self> {
        let binary = services_folder().join("mysql/bin/mysqld");
        if !binary.is_file() {
            return Err(Error::new(ErrorKind::NotFound, "MySQL is not installed; run scripts/services"));
        }
        let (folder, account) = daemon::folder("landfall-mysql-")?;
        install(&binary, folder.path(), account).await?;
        Ok(Self(Daemon::start(Mysqld(binary), folder, account).await?))
    }
}

async fn install(binary: &Path, folder: &Path, account: Option<Account>) -> Result<()> {
    let mut command = tokio::process::Command::new(binary);
    let data = format!("--datadir={}", folder.join("data").display());
    command.args(["--initialize-insecure", &data]).current_dir(folder);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().await.map_err(|error| daemon::unavailable("cannot run mysqld", error))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("mysqld failed to create its data folder: {stderr}")))
}

impl Program for Mysqld {
    const NAME: &'static str = "MySQL";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let settings = [
            format!("--datadir={}", folder.join("data").display()),
            format!("--tmpdir={}", folder.display()),
            format!("--pid-file={}", folder.join("pid").display()),
            format!("--port={port}"),
            // Relative to the data folder, because the kernel limits a socket's path to 107 bytes.
            "--socket=socket".into(),
            "--bind-address=127.0.0.1".into(),
            "--mysqlx=OFF".into(),
            "--max-connections=300".into(),
        ];
        let mut command = vec![self.0.clone().into_os_string()];
        command.extend(settings.map(OsString::from));
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        super::probe(port).await
    }
}
