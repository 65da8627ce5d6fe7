//! A private NATS with JetStream: one server, or a cluster of three.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use super::daemon::{self, Daemon, ProbeResult, Program, services_folder};
use super::watchdog::StopSignal;
use crate::not_run;

/// The configuration of a server.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// Whether the server syncs before it acknowledges (`sync_interval: always`).
    pub sync_always: bool,
    /// Whether it listens on all interfaces instead of 127.0.0.1 only.
    pub everywhere: bool,
    /// The limit for all streams together, in bytes. The server's default is three quarters of the disk.
    pub store_bytes: Option<u64>,
    /// The parent of its folder. The server then runs under this process's account, because a disk in a private mount
    /// namespace belongs to no other account.
    pub within: Option<PathBuf>,
    /// Additional configuration, such as accounts.
    pub more: String,
}

/// A private NATS server, killed when this is dropped and when the process ends in any other way.
#[derive(Debug)]
pub struct NatsServer {
    daemon: Daemon<Nats>,
}

#[derive(Debug, Clone)]
struct Nats {
    binary: PathBuf,
    listen: &'static str,
    monitor: u16,
}

impl NatsServer {
    /// Starts a server. Returns `None` if NATS is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str, options: NatsOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// Starts a cluster of three servers. Returns `None` if NATS is not installed.
    pub async fn start_cluster(test: &str, options: NatsOptions) -> Option<[Self; 3]> {
        let start = async || {
            let ports = [daemon::free_port()?, daemon::free_port()?, daemon::free_port()?];
            let routes: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            let cluster = |node: usize| {
                let (port, routes) = (ports[node], routes.join(", "));
                format!(
                    "server_name: node-{node}\n\
                     cluster {{ name: landfall, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n"
                )
            };
            let (one, two, three) = (cluster(0), cluster(1), cluster(2));
            let started = tokio::join!(
                Self::start_node(&options, &one),
                Self::start_node(&options, &two),
                Self::start_node(&options, &three)
            );
            Ok([started.0?, started.1?, started.2?])
        };
        start().await.map_err(|error: Error| not_run(test, &error.to_string())).ok()
    }

    /// As [`NatsServer::start`], with the reason if it cannot start.
    pub async fn try_start(options: NatsOptions) -> Result<Self> {
        Self::start_node(&options, "").await
    }

    async fn start_node(options: &NatsOptions, cluster: &str) -> Result<Self> {
        let binary = services_folder().join("nats/bin/nats-server");
        if !binary.is_file() {
            return Err(Error::new(ErrorKind::NotFound, "nats-server is not installed; run scripts/services"));
        }
        let (folder, account) = match &options.within {
            Some(within) => {
                let made = tempfile::Builder::new().prefix("landfall-nats-").tempdir_in(within);
                (made.map_err(|error| daemon::unavailable("cannot create a folder for NATS", error))?, None)
            }
            None => daemon::folder("landfall-nats-")?,
        };
        let sync = if options.sync_always { "sync_interval: always" } else { "" };
        let listen = if options.everywhere { "0.0.0.0" } else { "127.0.0.1" };
        let room = options.store_bytes.map(|bytes| format!("max_file_store: {bytes}")).unwrap_or_default();
        let store = folder.path().join("store");
        let config = format!(
            "jetstream {{ store_dir: \"{}\"\n {sync}\n {room} }}\n{cluster}include \"more.conf\"\n",
            store.display()
        );
        write(folder.path(), "nats.conf", &config)?;
        write(folder.path(), "more.conf", &options.more)?;
        let program = Nats { binary, listen, monitor: daemon::free_port()? };
        Ok(Self { daemon: Daemon::start(program, folder, account).await? })
    }

    /// `host:port` for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// The URL of its monitoring endpoint.
    pub fn monitor(&self) -> String {
        format!("http://127.0.0.1:{}", self.daemon.program().monitor)
    }

    /// The folder of its configuration; relative file names in it refer to this folder.
    pub fn folder(&self) -> &Path {
        self.daemon.folder()
    }

    /// Replaces [`NatsOptions::more`] and waits until the running server has reloaded it.
    ///
    /// The wait matters: the server may reject a client that connects during the reload, whatever its credentials.
    pub async fn reconfigure(&self, more: &str) -> Result<()> {
        let before = self.reloads()?;
        write(self.folder(), "more.conf", more)?;
        self.daemon.signal(Signal::SIGHUP).await?;
        let started = Instant::now();
        while self.reloads()? == before {
            if started.elapsed() > Duration::from_secs(30) {
                let text = "the NATS test server did not reload its configuration; see its log";
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Returns the number of reloads according to the server's log.
    fn reloads(&self) -> Result<usize> {
        let log = std::fs::read_to_string(self.folder().join("log"))
            .map_err(|error| daemon::unavailable("cannot read the log of the NATS test server", error))?;
        Ok(log.matches("Reloaded server configuration").count())
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(folder.join(name), text)
        .map_err(|error| daemon::unavailable("cannot write the configuration of the NATS test server", error))
}

daemon::faults!(NatsServer, daemon);

impl Program for Nats {
    const NAME: &'static str = "NATS";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let (port, monitor) = (port.to_string(), self.monitor.to_string());
        let mut command = vec![self.binary.clone().into_os_string(), "-c".into(), folder.join("nats.conf").into()];
        command.extend(["-a", self.listen, "-p", &port, "-m", &monitor].map(OsString::from));
        command
    }

    /// The server greets every connection with `INFO`.
    async fn probe(&self, port: u16) -> ProbeResult {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        if line.starts_with("INFO ") { Ok(()) } else { Err(line.into()) }
    }
}
