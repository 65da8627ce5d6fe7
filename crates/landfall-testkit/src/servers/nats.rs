//! A private NATS with JetStream: one server, or three that form a cluster.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use super::daemon::{self, Answer, Daemon, Program, services_folder};
use super::watchdog::Ending;
use crate::not_run;

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// Whether everything is synced before it is acknowledged, as `sync_interval: always` makes it.
    pub sync_always: bool,
    /// Whether it listens beyond 127.0.0.1.
    pub everywhere: bool,
    /// How many bytes all its streams may take together; three quarters of the disk if nobody says.
    pub store_bytes: Option<u64>,
    /// Where its folder is made, as the account of this process: a disk that only this process sees is no other account's.
    pub within: Option<PathBuf>,
    /// More of the server's configuration, such as its accounts.
    pub more: String,
}

/// A NATS server of this process's own. Killed when this is dropped, and also when the process ends in any other way.
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
    /// `None` where there is no NATS; it has been said then, in the name of `test`.
    pub async fn start(test: &str, options: NatsOptions) -> Option<Self> {
        Self::try_start(&options, "").await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// Three that know each other. `None` where there is no NATS.
    pub async fn start_cluster(test: &str, options: NatsOptions) -> Option<[Self; 3]> {
        let start = async || {
            let ports = [daemon::free_port()?, daemon::free_port()?, daemon::free_port()?];
            let routes: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            let cluster = |node: usize| {
                let (port, routes) = (ports[node], routes.join(", "));
                format!(
                    "server_name: node-{node}\ncluster {{ name: landfall, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n"
                )
            };
            let (one, two, three) = (cluster(0), cluster(1), cluster(2));
            let started = tokio::join!(
                Self::try_start(&options, &one),
                Self::try_start(&options, &two),
                Self::try_start(&options, &three)
            );
            Ok([started.0?, started.1?, started.2?])
        };
        start().await.map_err(|error: Error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start(options: &NatsOptions, cluster: &str) -> Result<Self> {
        let binary = services_folder().join("nats/bin/nats-server");
        if !binary.is_file() {
            return Err(Error::new(ErrorKind::NotFound, "there is no nats-server; scripts/services fetches it"));
        }
        let (folder, account) = match &options.within {
            Some(within) => {
                let made = tempfile::Builder::new().prefix("landfall-nats-").tempdir_in(within);
                (made.map_err(|error| daemon::unavailable("cannot make a folder for NATS", error))?, None)
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

    /// Without a scheme.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Where its monitoring answers.
    pub fn monitor(&self) -> String {
        format!("http://127.0.0.1:{}", self.daemon.program().monitor)
    }

    /// Where its configuration is; files that it names are looked for here.
    pub fn folder(&self) -> &Path {
        self.daemon.folder()
    }

    /// Puts `more` in the place of [`NatsOptions::more`] and has the server read it, which keeps running. It has read it
    /// when this returns: a client that connects in the middle of that may be turned away whatever its credentials.
    pub async fn reconfigure(&self, more: &str) -> Result<()> {
        let before = self.reloads()?;
        write(self.folder(), "more.conf", more)?;
        self.daemon.signal(Signal::SIGHUP).await?;
        let started = Instant::now();
        while self.reloads()? == before {
            if started.elapsed() > Duration::from_secs(30) {
                let sentence = "the NATS test server did not take its new configuration; its log says why";
                return Err(Error::new(ErrorKind::Unavailable, sentence));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// How often it has read its configuration again, by its own log.
    fn reloads(&self) -> Result<usize> {
        let log = std::fs::read_to_string(self.folder().join("log"))
            .map_err(|error| daemon::unavailable("the log of the NATS test server cannot be read", error))?;
        Ok(log.matches("Reloaded server configuration").count())
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(folder.join(name), text)
        .map_err(|error| daemon::unavailable("the configuration of the NATS test server cannot be written", error))
}

daemon::faults!(NatsServer, daemon);

impl Program for Nats {
    const NAME: &'static str = "NATS";
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let (port, monitor) = (port.to_string(), self.monitor.to_string());
        let mut command = vec![self.binary.clone().into_os_string(), "-c".into(), folder.join("nats.conf").into()];
        command.extend(["-a", self.listen, "-p", &port, "-m", &monitor].map(OsString::from));
        command
    }

    /// It greets every connection with what it is.
    async fn answers(&self, port: u16) -> Answer {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        if line.starts_with("INFO ") { Ok(()) } else { Err(line.into()) }
    }
}
