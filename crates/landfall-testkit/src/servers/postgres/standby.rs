//! A hot standby of a private server.

use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use super::{Postgres, PostgresServer, USER};
use crate::servers::account::Account;
use crate::servers::daemon::{self, Daemon, unavailable};

impl PostgresServer {
    /// Starts a hot standby from a base backup of this server. It follows this server and accepts reads.
    pub async fn standby(&self) -> Result<PostgresServer> {
        let program = Postgres { binaries: super::setup::find_binaries()?, options: super::PostgresOptions::default() };
        let (folder, account) = daemon::folder("landfall-pg-standby-")?;
        copy(&program.binaries, self.port(), folder.path(), account).await?;
        Ok(Self(Daemon::start(program, folder, account).await?))
    }
}

async fn copy(binaries: &Path, port: u16, folder: &Path, account: Option<Account>) -> Result<()> {
    let mut command = tokio::process::Command::new(binaries.join("pg_basebackup"));
    command.arg("-D").arg(folder.join("data")).current_dir(folder);
    command.args(["--no-sync", "--write-recovery-conf", "--checkpoint=fast", "--host=127.0.0.1", "--username", USER]);
    command.arg(format!("--port={port}"));
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().await.map_err(|error| unavailable("cannot run pg_basebackup", error))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("pg_basebackup failed: {stderr}")))
}
