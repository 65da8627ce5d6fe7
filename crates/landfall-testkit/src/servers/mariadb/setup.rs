//! Finding MariaDB's programs, and making the folder that a server runs on.

use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};

use super::database::URL_VARIABLE;
use crate::servers::account::Account;
use crate::servers::daemon::unavailable;

#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) server: PathBuf,
    install: PathBuf,
}

/// `mariadbd` and `mariadb-install-db`: from `PATH`, or where Debian keeps what only root needs.
pub(super) fn find_binaries() -> Result<Binaries> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/bin", "/usr/local/sbin"].map(PathBuf::from)).collect();
    let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    match (find("mariadbd"), find("mariadb-install-db")) {
        (Some(server), Some(install)) => Ok(Binaries { server, install }),
        _ => {
            let text = format!("no MariaDB server is installed; run scripts/services or set {URL_VARIABLE}");
            Err(Error::new(ErrorKind::Unavailable, text))
        }
    }
}

pub(super) async fn install(binaries: &Binaries, folder: &Path, account: Option<Account>) -> Result<()> {
    let mut command = tokio::process::Command::new(&binaries.install);
    command.arg("--no-defaults").arg(format!("--datadir={}", folder.join("data").display())).current_dir(folder);
    // Whoever begins removes the temporary tables of a folder: in a common one, those of others at work there too.
    command.arg(format!("--tmpdir={}", folder.display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    // Nothing in here needs to survive a power cut before the first start, so it need not be synced.
    command.args(["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0"]);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().await.map_err(|error| unavailable("cannot run mariadb-install-db", error))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("mariadb-install-db failed: {why}")))
}
