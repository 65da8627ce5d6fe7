//! The account that a server runs under. Tests often run as root, and some servers refuse to.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

/// The unprivileged account of every Unix system.
pub(super) const UNPRIVILEGED_USER: &str = "nobody";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Returns the account to switch to before starting a server: `None` unless this process is root.
///
/// `own` is a folder that this process just created: its owner is the effective user, without a system call.
pub(super) fn unprivileged(own: &Path) -> Result<Option<Account>> {
    let failed =
        |what: &str, error| Error::new(ErrorKind::Unavailable, format!("cannot read {what}")).with_source(error);
    if std::fs::metadata(own).map_err(|error| failed("the temporary folder", error))?.uid() != 0 {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").map_err(|error| failed("/etc/passwd", error))?;
    match ["postgres", UNPRIVILEGED_USER].into_iter().find_map(|name| look_up(&passwd, name)) {
        Some(account) => Ok(Some(account)),
        None => Err(Error::new(
            ErrorKind::Unavailable,
            format!("root cannot run the server; create a user postgres or {UNPRIVILEGED_USER}"),
        )),
    }
}

fn look_up(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some(Account { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_matched_by_full_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\ndaemon2:x:9:9::/:/bin/sh\ndaemon:x:65534:65533:daemon:/:/sbin/no";
        assert_eq!(look_up(passwd, "daemon"), Some(Account { uid: 65534, gid: 65533 }));
        assert_eq!(look_up(passwd, "postgres"), None);
    }
}
