//! Finds PostgreSQL's programs and creates the data folder of a server.

use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};

use super::USER;
use super::database::URL_VARIABLE;
use crate::servers::account::Account;
use crate::servers::daemon::unavailable;

/// Returns the folder of `initdb` and `postgres`: Debian's newest version, which is not in `PATH`, else from `PATH`.
pub(super) fn find_binaries() -> Result<PathBuf> {
    let mut versioned: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .collect();
    versioned.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = versioned.into_iter().rev().map(|(_, folder)| folder).chain(std::env::split_paths(&path));
    let is_complete = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    folders.into_iter().find(is_complete).ok_or_else(|| {
        let text = format!("no PostgreSQL server is installed; run scripts/services or set {URL_VARIABLE}");
        Error::new(ErrorKind::Unavailable, text)
    })
}

pub(super) async fn initdb(binaries: &Path, folder: &Path, account: Option<Account>) -> Result<()> {
    let mut command = tokio::process::Command::new(binaries.join("initdb"));
    command.arg("-D").arg(folder.join("data")).current_dir(folder);
    // The folder need not survive a power cut before the first start, so syncing is unnecessary.
    command.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER]);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    let output = command.output().await.map_err(|error| unavailable("cannot run initdb", error))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Unavailable, format!("initdb failed: {stderr}")))
}
