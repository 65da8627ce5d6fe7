//! A private Redis: on 127.0.0.1 and a free port, gone when the process is. In memory only, unless its options say more.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::daemon::{self, Answer, Daemon, Program};
use super::watchdog::Ending;
use crate::not_run;

/// A Redis server of this process's own. Killed when this is dropped, and also when the process ends in any other way.
#[derive(Debug)]
pub struct RedisServer {
    daemon: Daemon<Redis>,
    options: RedisOptions,
    folder: PathBuf,
}

/// What differs from a Redis that keeps everything in memory and lets anybody in.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    settings: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
struct Redis {
    binary: PathBuf,
    options: RedisOptions,
}

impl RedisOptions {
    /// What was accepted is on disk: an append-only file, synced before every answer, and nothing is ever evicted.
    pub fn durable() -> Self {
        let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")];
        settings.into_iter().fold(Self::default(), |options, (name, value)| options.with(name, value))
    }

    /// As durable, and a copy of the server at `port`.
    pub fn replica_of(port: u16) -> Self {
        Self::durable().with("replicaof", &format!("127.0.0.1 {port}")).with("repl-diskless-sync-delay", "0")
    }

    /// The same with one more setting, as it stands in `redis.conf`. The last of several of one name counts.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    fn password(&self) -> Option<&str> {
        self.settings.iter().rev().find(|(name, _)| name == "requirepass").map(|(_, password)| password.as_str())
    }
}

impl RedisServer {
    /// `None` where there is no Redis; it has been said then, in the name of `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::start_with(test, RedisOptions::default()).await
    }

    /// As [`RedisServer::start`], with settings of its own.
    pub async fn start_with(test: &str, options: RedisOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start(options: RedisOptions) -> Result<Self> {
        let binary = daemon::find_program("redis-server", "redis-server")?;
        let (folder, account) = daemon::folder("landfall-redis-")?;
        let path = folder.path().to_owned();
        let daemon = Daemon::start(Redis { binary, options: options.clone() }, folder, account).await?;
        Ok(Self { daemon, options, folder: path })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port())
    }

    pub fn port(&self) -> u16 {
        self.daemon.port()
    }

    /// Where it keeps its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Forgets everything, as `FLUSHALL` does.
    pub async fn flush(&self) -> Result<()> {
        self.ask("FLUSHALL").await.map(drop)
    }

    /// The keys that are in it.
    pub async fn size(&self) -> u64 {
        let answer = self.ask("DBSIZE").await.unwrap_or_default();
        answer.trim().trim_start_matches(':').parse().unwrap_or(0)
    }

    /// One command in Redis's plain form, as an administrator, and the beginning of its answer.
    pub async fn ask(&self, command: &str) -> Result<String> {
        let password = self.options.password();
        ask(self.port(), password, command).await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the Redis test server does not answer").with_source(error)
        })
    }
}

daemon::faults!(RedisServer, daemon);

impl Program for Redis {
    const NAME: &'static str = "Redis";
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.binary.clone().into_os_string(), "--dir".into(), folder.into()];
        let port = port.to_string();
        let settings = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        command.extend(settings.map(OsString::from));
        for (name, value) in &self.options.settings {
            command.push(format!("--{name}").into());
            // Several values of one setting are several words.
            command.extend(value.split(' ').map(OsString::from));
        }
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        match ask(port, self.options.password(), "PING").await {
            Ok(answer) if answer.starts_with("+PONG") => Ok(()),
            Ok(answer) => Err(answer.into()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn ask(port: u16, password: Option<&str>, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    if let Some(password) = password {
        exchange(&mut stream, &format!("AUTH {password}")).await?;
    }
    exchange(&mut stream, command).await
}

async fn exchange(stream: &mut TcpStream, command: &str) -> std::io::Result<String> {
    stream.write_all(format!("{command}\r\n").as_bytes()).await?;
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
