//! Certificates for a server on 127.0.0.1 and for its clients, made by `openssl` for one test.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use landfall_core::{Error, ErrorKind, Result};
use tempfile::TempDir;

use super::daemon;
use crate::not_run;

/// An authority that vouches for a server and for the client `shop`, and another one that nobody asked.
const SCRIPT: &str = r#"
set -e
new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" -keyout "$2.key" "${@:3}"; }
signed() {
    new "$1" "$2" -out "$2.csr"
    printf '%s\n' "$3" 'basicConstraints=critical,CA:FALSE' >"$2.ext"
    openssl x509 -req -in "$2.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "$2.ext" -out "$2.pem"
}
new 'an authority' ca -x509 -days 2 -out ca.pem
new 'another authority' other -x509 -days 2 -out other.pem
signed localhost server 'subjectAltName=IP:127.0.0.1,DNS:localhost'
signed shop client 'extendedKeyUsage=clientAuth'
chmod 644 ./*.pem ./*.key
"#;

/// Files in PEM format, gone when this is dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// `None` where nobody can make them; it has been said then, in the name of `test`.
    pub async fn make(test: &str) -> Option<Self> {
        Self::try_make().await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_make() -> Result<Self> {
        let failed =
            |error: std::io::Error| daemon::unavailable("there is no openssl to make certificates with", error);
        let folder = tempfile::tempdir().map_err(failed)?;
        // Servers may run under another account.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let script = ["-c", SCRIPT];
        let made = tokio::process::Command::new("bash").args(script).current_dir(folder.path()).output().await;
        let made = made.map_err(failed)?;
        match made.status.success() {
            true => Ok(Self { folder }),
            false => {
                let told = String::from_utf8_lossy(&made.stderr).into_owned();
                Err(Error::new(ErrorKind::Unavailable, format!("openssl makes no certificates: {told}")))
            }
        }
    }

    /// Who vouches for the server and for the client.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Who vouches for nobody.
    pub fn other_authority(&self) -> PathBuf {
        self.folder.path().join("other.pem")
    }

    /// The server's certificate, for 127.0.0.1, and its key.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("server.pem"), self.folder.path().join("server.key"))
    }

    /// The certificate of a client by the name of `shop`, and its key.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("client.pem"), self.folder.path().join("client.key"))
    }
}
