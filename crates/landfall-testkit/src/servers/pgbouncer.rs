//! PgBouncer in transaction mode: every transaction may run on another server connection.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use landfall_core::{Error, ErrorKind, Result};
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;

use super::account::UNPRIVILEGED_USER;
use super::fresh_postgres_database;
use crate::{current_test, not_run};

/// A pooler in front of an empty database, stopped when this is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    url: String,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts PgBouncer in front of a new database. It may not accept connections at once.
    ///
    /// Returns `None` without PostgreSQL or PgBouncer, after calling [`not_run()`].
    ///
    /// # Panics
    ///
    /// If PgBouncer is installed and cannot be started.
    #[allow(clippy::expect_used, reason = "a test fails by panicking")]
    pub async fn fresh_database() -> Option<Self> {
        let url = fresh_postgres_database().await?;
        let paths = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
        let Some(binary) = paths.into_iter().find(|path| Path::new(path).exists()) else {
            not_run(&current_test(), "PgBouncer is not installed");
            return None;
        };
        Some(Self::start(binary, &url).expect("cannot start PgBouncer"))
    }

    /// Its URL, with the parameter that tells Landfall's adapter about the pooler.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn start(binary: &str, url: &str) -> Result<Self> {
        let target: PgConnectOptions = url.parse().map_err(|error| failed("invalid server URL", error))?;
        let (host, server_port, user) = (target.get_host(), target.get_port(), target.get_username());
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| failed("cannot find a free port", error))?.port();
        let folder = tempfile::tempdir().map_err(|error| failed("cannot create a temporary folder", error))?;
        let settings = folder.path().join("pgbouncer.ini");
        // Fewer connections than clients, so that they are shared.
        let text = format!(
            "[databases]\n* = host={host} port={server_port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n\
             max_client_conn = 100\nunix_socket_dir =\n"
        );
        std::fs::write(&settings, text)
            .and_then(|()| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)))
            .map_err(|error| failed("cannot write the settings", error))?;
        let mut command = Command::new(binary);
        if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            // PgBouncer refuses to run as root.
            command.args(["-u", UNPRIVILEGED_USER]);
        }
        let spawned = command.arg(&settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = spawned.map_err(|error| failed("cannot run the program", error))?;
        let database = target.get_database().unwrap_or_default();
        let url = format!("postgres://{user}@127.0.0.1:{port}/{database}?pooler=transaction");
        Ok(Self { process, url, _folder: folder })
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn failed(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, format!("PgBouncer: {what}")).with_source(error)
}
