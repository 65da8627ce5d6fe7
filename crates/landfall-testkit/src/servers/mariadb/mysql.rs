//! A private MySQL, for what is to be shown on MySQL itself and not on MariaDB alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;

use super::database;
use crate::not_run::{current_test, not_run};
use crate::servers::account::Account;
use crate::servers::daemon::{self, Answer, Daemon, Program, services_folder};
use crate::servers::watchdog::Ending;

/// A MySQL of this process's own, gone when the process is.
#[derive(Debug)]
struct MySqlServer(Daemon<Mysqld>);

#[derive(Debug)]
struct Mysqld(PathBuf);

/// The URL of a new, empty database on a MySQL that all tests of this process share. `None`, with one line saying why, if
/// there is none.
pub async fn fresh_database_on_mysql() -> Option<String> {
    static SHARED: OnceCell<std::result::Result<MySqlServer, String>> = OnceCell::const_new();
    let server = SHARED.get_or_init(async || MySqlServer::start().await.map_err(|error| error.to_string())).await;
    let created = match server {
        Ok(server) => database::create(&super::url(server.0.port(), "mysql")).await.map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    created.map_err(|why| not_run(&current_test(), &why)).ok()
}

impl MySqlServer {
    async fn start() -> Result<Self> {
        let binary = services_folder().join("mysql/bin/mysqld");
        if !binary.is_file() {
            return Err(Error::new(ErrorKind::NotFound, "there is no MySQL; scripts/services fetches it"));
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
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("mysqld makes no data folder: {why}")))
}

impl Program for Mysqld {
    const NAME: &'static str = "MySQL";
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let settings = [
            format!("--datadir={}", folder.join("data").display()),
            format!("--tmpdir={}", folder.display()),
            format!("--pid-file={}", folder.join("pid").display()),
            format!("--port={port}"),
            // A relative name is counted from the data folder, and a socket's is limited to 107 bytes.
            "--socket=socket".into(),
            "--bind-address=127.0.0.1".into(),
            "--mysqlx=OFF".into(),
            "--max-connections=300".into(),
        ];
        let mut command = vec![self.0.clone().into_os_string()];
        command.extend(settings.map(OsString::from));
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        super::answers(port).await
    }
}
