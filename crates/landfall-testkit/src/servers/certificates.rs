//! Certificates for a server on 127.0.0.1 and its clients, created by `openssl` for one test.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use landfall_core::{Error, ErrorKind, Result};
use tempfile::TempDir;

use super::daemon;
use crate::not_run;

/// Creates an authority that signs the server's certificate and that of the client `shop`, and an unrelated authority.
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

/// Certificates and keys as PEM files, removed when this is dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Creates the certificates. Returns `None` without `openssl`, after calling [`not_run()`] for `test`.
    pub async fn make(test: &str) -> Option<Self> {
        Self::try_make().await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_make() -> Result<Self> {
        let failed = |error: std::io::Error| daemon::unavailable("cannot run openssl to create certificates", error);
        let folder = tempfile::tempdir().map_err(failed)?;
        // Servers may run under another account and must read the files.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let script = ["-c", SCRIPT];
        let made = tokio::process::Command::new("bash").args(script).current_dir(folder.path()).output().await;
        let made = made.map_err(failed)?;
        match made.status.success() {
            true => Ok(Self { folder }),
            false => {
                let stderr = String::from_utf8_lossy(&made.stderr).into_owned();
                Err(Error::new(ErrorKind::Unavailable, format!("openssl failed to create certificates: {stderr}")))
            }
        }
    }

    /// The authority that signed the certificates of server and client.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// An unrelated authority.
    pub fn other_authority(&self) -> PathBuf {
        self.folder.path().join("other.pem")
    }

    /// The certificate and key of the server at 127.0.0.1.
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("server.pem"), self.folder.path().join("server.key"))
    }

    /// The certificate and key of the client `shop`.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("client.pem"), self.folder.path().join("client.key"))
    }
}
