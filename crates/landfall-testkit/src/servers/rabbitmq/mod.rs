//! A private RabbitMQ on 127.0.0.1 and free ports, with its own node name and cookie.

mod name_server;
mod setup;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::name_server::NameServer;
use self::setup::Setup;
use super::certificates::Certificates;
use super::daemon::{self, Daemon, ProbeResult, Program};
use super::watchdog::StopSignal;
use crate::not_run;

/// Not the wrapper in `PATH`, which insists on Debian's account and folders.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

/// The configuration of a server.
#[derive(Debug, Clone, Default)]
pub struct RabbitMqOptions {
    /// Lines for `rabbitmq.conf`.
    pub settings: Vec<(String, String)>,
}

/// A private RabbitMQ server with the management plugin.
#[derive(Debug)]
pub struct RabbitMqServer {
    daemon: Daemon<RabbitMq>,
    management: u16,
    tls: Option<TlsPorts>,
    /// The last field, so that it is dropped after the server.
    name_server: Arc<NameServer>,
}

#[derive(Debug)]
struct RabbitMq {
    binary: PathBuf,
    node: String,
    name_server: u16,
    distribution: u16,
}

/// The TLS ports of a server.
#[derive(Debug)]
struct TlsPorts {
    amqp: u16,
    management: u16,
}

impl RabbitMqServer {
    /// Starts a server. Returns `None` if RabbitMQ is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::start_with(test, RabbitMqOptions::default()).await
    }

    /// As [`RabbitMqServer::start`], with the given options.
    pub async fn start_with(test: &str, options: RabbitMqOptions) -> Option<Self> {
        Self::try_start(options).await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    /// As [`RabbitMqServer::start_with`], with the reason if it cannot start.
    pub async fn try_start(options: RabbitMqOptions) -> Result<Self> {
        let setup = Setup { settings: options.settings, ..Setup::default() };
        Self::launch("landfall@localhost", setup, Arc::new(NameServer::start().await?)).await
    }

    /// Starts a server with additional TLS ports. If `strict`, TLS clients must present a certificate.
    pub async fn start_secure(test: &str, certificates: &Certificates, strict: bool) -> Option<Self> {
        let start = async || {
            let ports = TlsPorts { amqp: daemon::free_port()?, management: daemon::free_port()? };
            let (settings, plugins) = (setup::tls(certificates, &ports, strict), vec!["rabbitmq_auth_mechanism_ssl"]);
            let setup = Setup { settings, plugins, ..Setup::default() };
            let server = Self::launch("landfall@localhost", setup, Arc::new(NameServer::start().await?)).await?;
            // The probe of readiness knows only the ports without TLS, which open earlier.
            for port in [ports.amqp, ports.management] {
                daemon::listening(port).await?;
            }
            Ok(Self { tls: Some(ports), ..server })
        };
        start().await.map_err(|error: Error| not_run(test, &error.to_string())).ok()
    }

    /// Starts a cluster of three servers.
    pub async fn start_cluster(test: &str) -> Option<[Self; 3]> {
        let start = async || {
            let name_server = Arc::new(NameServer::start().await?);
            let cookie = Some(uuid::Uuid::now_v7().simple().to_string());
            let first = "landfall-0@localhost";
            let setup = Setup { cookie: cookie.clone(), ..Setup::default() };
            let zero = Self::launch(first, setup, name_server.clone()).await?;
            let join = async |node: &str| {
                let settings = vec![("cluster_formation.classic_config.nodes.1".to_owned(), first.to_owned())];
                let setup = Setup { settings, cookie: cookie.clone(), ..Setup::default() };
                Self::launch(node, setup, name_server.clone()).await
            };
            let (one, two) = tokio::join!(join("landfall-1@localhost"), join("landfall-2@localhost"));
            Ok([zero, one?, two?])
        };
        start().await.map_err(|error: Error| not_run(test, &error.to_string())).ok()
    }

    async fn launch(node: &str, setup: Setup, name_server: Arc<NameServer>) -> Result<Self> {
        let binary = PathBuf::from(SERVER);
        if !binary.is_file() {
            return Err(Error::new(
                ErrorKind::NotFound,
                "RabbitMQ is not installed; on Debian: apt install rabbitmq-server",
            ));
        }
        let (management, distribution) = (daemon::free_port()?, daemon::free_port()?);
        let program = RabbitMq { binary, node: node.to_owned(), name_server: name_server.port(), distribution };
        let (folder, account) = daemon::folder("landfall-rabbitmq-")?;
        setup.write(folder.path(), account, management)?;
        Ok(Self { daemon: Daemon::start(program, folder, account).await?, management, tls: None, name_server })
    }

    pub fn port(&self) -> u16 {
        self.daemon.port()
    }

    /// The URL with the default account `guest`.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port())
    }

    /// `host:port` of AMQP over TLS, and of the management plugin over HTTPS.
    pub fn secure_addresses(&self) -> Option<(String, String)> {
        let at = |port: u16| format!("127.0.0.1:{port}");
        self.tls.as_ref().map(|ports| (at(ports.amqp), at(ports.management)))
    }

    /// Its node name in the cluster.
    pub fn node(&self) -> &str {
        &self.daemon.program().node
    }

    /// The HTTP port of the management plugin.
    pub fn management_port(&self) -> u16 {
        self.management
    }

    pub fn management_url(&self) -> String {
        format!("http://guest:guest@127.0.0.1:{}", self.management)
    }

    /// Whether the quorum queue `name` in the virtual host `/` would survive [`Self::kill_9`].
    ///
    /// The server writes the names of quorum queues to a file a few seconds after their creation.
    pub async fn remembers_queue(&self, name: &str) -> bool {
        let node = self.node();
        let folder = self.daemon.folder().join(format!("mnesia/{node}/quorum/{node}"));
        let written = tokio::fs::read(folder.join("names.dets")).await.unwrap_or_default();
        let name = format!("%2F_{name}");
        written.windows(name.len()).any(|found| found == name.as_bytes())
    }

    /// Sends a request to the management API as `guest` and returns the response body. `PUT` and `DELETE` change users,
    /// permissions, policies and queues.
    pub async fn manage(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let failed = |error| daemon::unavailable("cannot reach the management plugin", error);
        let response = request(self.management, method, path, body).await.map_err(failed)?;
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        match head.split(' ').nth(1) {
            Some(status) if status.starts_with('2') => Ok(body.to_owned()),
            _ => Err(Error::new(ErrorKind::Internal, format!("{method} {path} failed: {response}"))),
        }
    }
}

impl RabbitMqServer {
    /// Runs `rabbitmqctl` on this node. Takes seconds, because it starts its own Erlang runtime.
    pub async fn control(&self, arguments: &[&str]) -> Result<()> {
        let failed = |error: std::io::Error| daemon::unavailable("cannot run rabbitmqctl", error);
        let cookie = tokio::fs::read_to_string(self.daemon.folder().join(".erlang.cookie")).await.map_err(failed)?;
        let home = tempfile::tempdir().map_err(failed)?;
        let output = tokio::process::Command::new(CONTROL)
            .args(["-n", self.node(), "--erlang-cookie", cookie.trim()])
            .args(arguments)
            .env("HOME", home.path())
            .env("ERL_EPMD_PORT", self.name_server.port().to_string())
            .env("RABBITMQ_CONF_ENV_FILE", home.path().join("there-is-none"))
            .current_dir(home.path())
            .output()
            .await
            .map_err(failed)?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(Error::new(ErrorKind::Internal, format!("rabbitmqctl {arguments:?} failed: {stderr}")))
            }
        }
    }
}

daemon::faults!(RabbitMqServer, daemon);

impl Program for RabbitMq {
    const NAME: &'static str = "RabbitMQ";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let at = |name: &str| folder.join(name).into_os_string();
        let text = |text: &str| OsString::from(text);
        let variables = [
            ("HOME", folder.as_os_str().to_owned()),
            ("RABBITMQ_NODENAME", text(&self.node)),
            ("RABBITMQ_MNESIA_BASE", at("mnesia")),
            ("RABBITMQ_LOG_BASE", at("logs")),
            ("RABBITMQ_LOGS", text("-")),
            ("RABBITMQ_NODE_IP_ADDRESS", text("127.0.0.1")),
            ("RABBITMQ_NODE_PORT", port.to_string().into()),
            ("RABBITMQ_DIST_PORT", self.distribution.to_string().into()),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins")),
            // Without the file extension, which the server adds.
            ("RABBITMQ_CONFIG_FILE", at("rabbitmq")),
            ("RABBITMQ_CONF_ENV_FILE", at("there-is-none")),
            ("RABBITMQ_PID_FILE", at("pid")),
            ("ERL_EPMD_PORT", self.name_server.to_string().into()),
            ("ERL_EPMD_ADDRESS", text("127.0.0.1")),
            // Schedulers of an idle server must not spin.
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", text("+sbwt none +sbwtdcpu none +sbwtdio none")),
            // Makes the start script `exec` the server, so that signals reach it.
            ("RUNNING_UNDER_SYSTEMD", text("true")),
        ];
        let mut command = vec![text("env")];
        command.extend(variables.into_iter().map(|(name, value)| {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(value);
            setting
        }));
        command.push(self.binary.clone().into_os_string());
        command
    }

    /// The server responds to the AMQP protocol header once it is fully up.
    async fn probe(&self, port: u16) -> ProbeResult {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        match stream.read_u8().await? {
            1 => Ok(()),
            other => Err(format!("unexpected frame type {other} in response to the protocol header").into()),
        }
    }
}

async fn request(port: u16, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    // guest:guest, in base64.
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}
