//! A private Redis: on 127.0.0.1 and a free port, in memory only, gone when the process is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::daemon::{self, Answer, Daemon, Program};
use super::watchdog::Ending;
use crate::not_run;

/// A Redis server of this process's own. Killed when this is dropped, and also when the process ends in any other way.
#[derive(Debug)]
pub struct RedisServer(Daemon<Redis>);

#[derive(Debug, Clone)]
struct Redis {
    binary: PathBuf,
}

impl RedisServer {
    /// `None` where there is no Redis; it has been said then, in the name of `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::try_start().await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start() -> Result<Self> {
        let binary = daemon::find_program("redis-server", "redis-server")?;
        let (folder, account) = daemon::folder("landfall-redis-")?;
        Ok(Self(Daemon::start(Redis { binary }, folder, account).await?))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.0.port())
    }

    /// Forgets everything, as `FLUSHALL` does.
    pub async fn flush(&self) -> Result<()> {
        ask(self.0.port(), "FLUSHALL\r\n").await.map(drop).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the Redis test server cannot be flushed").with_source(error)
        })
    }

    /// The keys that are in it.
    pub async fn size(&self) -> u64 {
        let answer = ask(self.0.port(), "DBSIZE\r\n").await.unwrap_or_default();
        answer.trim().trim_start_matches(':').parse().unwrap_or(0)
    }

    pub async fn kill_9(&self) -> Result<()> {
        self.0.kill_9().await
    }

    /// Stops it with SIGSTOP: connections stay open and nobody answers.
    pub async fn pause(&self) -> Result<()> {
        self.0.signal(Signal::SIGSTOP).await
    }

    pub async fn resume(&self) -> Result<()> {
        self.0.signal(Signal::SIGCONT).await
    }
}

impl Program for Redis {
    const NAME: &'static str = "Redis";
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.binary.clone().into_os_string(), "--dir".into(), folder.into()];
        let port = port.to_string();
        let settings = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        command.extend(settings.map(OsString::from));
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        match ask(port, "PING\r\n").await {
            Ok(answer) if answer.starts_with("+PONG") => Ok(()),
            Ok(answer) => Err(answer.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// One command in Redis's plain form, and the first line of its answer.
async fn ask(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(command.as_bytes()).await?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
