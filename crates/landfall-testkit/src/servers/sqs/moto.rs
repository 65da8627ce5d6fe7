//! moto, an in-memory emulation of AWS.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::Result;
use tokio::net::TcpStream;

use super::{probe_http, python_sqs};
use crate::not_run;
use crate::servers::certificates::Certificates;
use crate::servers::daemon::{self, Daemon, ProbeResult, Program};
use crate::servers::watchdog::StopSignal;

/// A private moto server, stopped when the process ends.
#[derive(Debug)]
pub struct Moto(Daemon<Python>);

#[derive(Debug, Clone)]
struct Python {
    binary: PathBuf,
    /// Certificate and key of the server, if it uses TLS.
    tls: Option<(PathBuf, PathBuf)>,
}

impl Moto {
    /// Starts a server. Returns `None` if moto is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::try_start(None).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// Starts a server that accepts only TLS.
    pub async fn start_secure(test: &str, certificates: &Certificates) -> Option<Self> {
        Self::try_start(Some(certificates.server())).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start(tls: Option<(PathBuf, PathBuf)>) -> Result<Self> {
        let binary = python_sqs()?;
        // Under this account: other accounts may not be able to read the Python installation.
        let (folder, _) = daemon::folder("landfall-moto-")?;
        Ok(Self(Daemon::start(Python { binary, tls }, folder, None).await?))
    }

    pub fn endpoint(&self) -> String {
        let scheme = if self.0.program().tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.0.port())
    }

    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.0.port()).into()
    }
}

impl Program for Python {
    const NAME: &'static str = "moto";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, _folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.binary.clone().into_os_string()];
        command.extend(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()].map(OsString::from));
        if let Some((certificate, key)) = &self.tls {
            command.extend(["-s".into(), "-c".into(), certificate.into(), "-k".into(), key.into()]);
        }
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        match self.tls {
            None => probe_http(port, "/moto-api/data.json").await,
            // A listening server is ready; a plain HTTP request would fail the TLS handshake.
            Some(_) => Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?),
        }
    }
}
