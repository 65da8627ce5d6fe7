//! The account that a server runs under. Some servers refuse to run as root, which is what tests often run as.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The account to change to before starting a server: none unless this process is root.
///
/// `own` is a folder that this process just made: whoever owns it is who we are, and no system call is needed.
pub(super) fn unprivileged(own: &Path) -> Result<Option<Account>> {
    let failed =
        |what: &str, error| Error::new(ErrorKind::Unavailable, format!("cannot read {what}")).with_source(error);
    if std::fs::metadata(own).map_err(|error| failed("the temporary folder", error))?.uid() != 0 {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").map_err(|error| failed("/etc/passwd", error))?;
    match ["postgres", "nobody"].into_iter().find_map(|name| look_up(&passwd, name)) {
        Some(account) => Ok(Some(account)),
        None => Err(Error::new(
            ErrorKind::Unavailable,
            "this is root, and there is neither a user postgres nor a user nobody to run the server as",
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
    fn accounts_are_found_by_their_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody2:x:9:9::/:/bin/sh\nnobody:x:65534:65533:nobody:/:/sbin/no";
        assert_eq!(look_up(passwd, "nobody"), Some(Account { uid: 65534, gid: 65533 }));
        assert_eq!(look_up(passwd, "postgres"), None);
    }
}
