//! Erlang's name server, on a port of its own. A node would start one along, which then outlives everybody.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::Result;
use tokio::net::TcpStream;

use crate::servers::daemon::{self, Answer, Daemon, Program};
use crate::servers::watchdog::Ending;

/// The nodes of a cluster find each other through it, so that it must not die with one of them.
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
    const ENDING: Ending = Ending::Kill;

    fn command(&self, _folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.0.clone().into_os_string()];
        command.extend(["-port", &port.to_string(), "-address", "127.0.0.1"].map(OsString::from));
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        TcpStream::connect(("127.0.0.1", port)).await?;
        Ok(())
    }
}
