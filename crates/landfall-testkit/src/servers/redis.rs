//! A private Redis on 127.0.0.1 and a free port. It keeps data in memory only, unless its options say otherwise.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::daemon::{self, Daemon, ProbeResult, Program};
use super::watchdog::StopSignal;
use crate::not_run;

/// A private Redis server, killed when this is dropped and when the process ends in any other way.
#[derive(Debug)]
pub struct RedisServer {
    daemon: Daemon<Redis>,
    options: RedisOptions,
    folder: PathBuf,
}

/// Settings that differ from the default: data in memory only, and no authentication.
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
    /// Durable: an append-only file that is synced before every response, and no eviction.
    pub fn durable() -> Self {
        let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")];
        settings.into_iter().fold(Self::default(), |options, (name, value)| options.with(name, value))
    }

    /// As [`RedisOptions::durable`], as a replica of the server at `port`.
    pub fn replica_of(port: u16) -> Self {
        Self::durable().with("replicaof", &format!("127.0.0.1 {port}")).with("repl-diskless-sync-delay", "0")
    }

    /// Adds a setting as in `redis.conf`. The last setting of a name wins.
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
    /// Starts a server. Returns `None` if Redis is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::start_with(test, RedisOptions::default()).await
    }

    /// As [`RedisServer::start`], with the given options.
    pub async fn start_with(test: &str, options: RedisOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// As [`RedisServer::start_with`], with the reason if it cannot start.
    pub async fn try_start(options: RedisOptions) -> Result<Self> {
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

    /// The folder with its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Deletes all data with `FLUSHALL`.
    pub async fn flush(&self) -> Result<()> {
        self.ask("FLUSHALL").await.map(drop)
    }

    /// Returns the number of keys.
    pub async fn size(&self) -> u64 {
        let reply = self.ask("DBSIZE").await.unwrap_or_default();
        reply.trim().trim_start_matches(':').parse().unwrap_or(0)
    }

    /// Sends an inline command, authenticated if needed, and returns the beginning of the reply.
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
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.binary.clone().into_os_string(), "--dir".into(), folder.into()];
        let port = port.to_string();
        let settings = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        command.extend(settings.map(OsString::from));
        for (name, value) in &self.options.settings {
            command.push(format!("--{name}").into());
            // Multiple values of one setting are separate arguments.
            command.extend(value.split(' ').map(OsString::from));
        }
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        match ask(port, self.options.password(), "PING").await {
            Ok(reply) if reply.starts_with("+PONG") => Ok(()),
            Ok(reply) => Err(reply.into()),
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
    let mut reply = [0; 4096];
    let length = stream.read(&mut reply).await?;
    Ok(String::from_utf8_lossy(&reply[..length]).into_owned())
}
