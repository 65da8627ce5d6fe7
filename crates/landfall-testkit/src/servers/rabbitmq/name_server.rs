//! Erlang's name server (epmd) on a private port. A node would otherwise start one that outlives the tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::Result;
use tokio::net::TcpStream;

use crate::servers::daemon::{self, Daemon, ProbeResult, Program};
use crate::servers::watchdog::StopSignal;

/// A private epmd. The nodes of a cluster find each other through it, so it must not die with one of them.
#[derive(Debug)]
pub(super) struct NameServer(Daemon<Epmd>);

#[derive(Debug)]
struct Epmd(PathBuf);

impl NameServer {
    pub(super) async fn start() -> Result<Self> {
        let binary = daemon::find_program("epmd", "erlang-base")?;
        let (folder, account) = daemon::folder("landfall-epmd-")?;
        Ok(Self(Daemon::start(Epmd(binary), folder, account).await?))
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port()
    }
}

impl Program for Epmd {
    const NAME: &'static str = "Erlang's name server";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, _folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.0.clone().into_os_string()];
        command.extend(["-port", &port.to_string(), "-address", "127.0.0.1"].map(OsString::from));
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        TcpStream::connect(("127.0.0.1", port)).await?;
        Ok(())
    }
}
