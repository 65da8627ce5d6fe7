//! moto, a stand-in for AWS in memory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::Result;
use tokio::net::TcpStream;

use super::{answers_http, python_sqs};
use crate::not_run;
use crate::servers::certificates::Certificates;
use crate::servers::daemon::{self, Answer, Daemon, Program};
use crate::servers::watchdog::Ending;

/// A moto of this process's own, gone when the process is.
#[derive(Debug)]
pub struct Moto(Daemon<Python>);

#[derive(Debug, Clone)]
struct Python {
    binary: PathBuf,
    /// The server's certificate and its key, if it speaks TLS.
    tls: Option<(PathBuf, PathBuf)>,
}

impl Moto {
    /// `None` where there is none; it has been said then, in the name of `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::try_start(None).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// One that speaks TLS and nothing else.
    pub async fn start_secure(test: &str, certificates: &Certificates) -> Option<Self> {
        Self::try_start(Some(certificates.server())).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start(tls: Option<(PathBuf, PathBuf)>) -> Result<Self> {
        let binary = python_sqs()?;
        // As this account: Python may be installed where no other one may look.
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
    const ENDING: Ending = Ending::Kill;

    fn command(&self, _folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.binary.clone().into_os_string()];
        command.extend(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()].map(OsString::from));
        if let Some((certificate, key)) = &self.tls {
            command.extend(["-s".into(), "-c".into(), certificate.into(), "-k".into(), key.into()]);
        }
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        match self.tls {
            None => answers_http(port, "/moto-api/data.json").await,
            // Whoever listens answers as soon as it is spoken to in its own language.
            Some(_) => Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?),
        }
    }
}
