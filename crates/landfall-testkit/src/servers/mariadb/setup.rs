//! Finds MariaDB's programs and creates the data folder of a server.

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

/// Finds `mariadbd` and `mariadb-install-db` in `PATH` or in Debian's folders for system programs.
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
    // A starting server removes all temporary tables in its folder: in a shared one, those of other servers too.
    command.arg(format!("--tmpdir={}", folder.display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    // The folder need not survive a power cut before the first start, so syncing is unnecessary.
    command.args(["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0"]);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().await.map_err(|error| unavailable("cannot run mariadb-install-db", error))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("mariadb-install-db failed: {stderr}")))
}
