//! ElasticMQ with on-disk storage.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};

use super::probe_http;
use crate::not_run;
use crate::servers::daemon::{self, Daemon, ProbeResult, Program, services_folder};
use crate::servers::watchdog::StopSignal;

/// A private ElasticMQ server, stopped when the process ends.
#[derive(Debug)]
pub struct ElasticMq(Daemon<Jars>);

#[derive(Debug, Clone)]
struct Jars {
    java: PathBuf,
    folder: PathBuf,
}

impl ElasticMq {
    /// Starts a server. Returns `None` if ElasticMQ is not installed, after calling [`not_run()`] for `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::try_start().await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start() -> Result<Self> {
        let java = daemon::find_program("java", "openjdk-17-jre-headless")?;
        let jars = services_folder().join("elasticmq");
        if !jars.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, "ElasticMQ is not installed; run scripts/services"));
        }
        let (folder, account) = daemon::folder("landfall-elasticmq-")?;
        Ok(Self(Daemon::start(Jars { java, folder: jars }, folder, account).await?))
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.0.port()).into()
    }
}

daemon::faults!(ElasticMq, 0);

impl Program for Jars {
    const NAME: &'static str = "ElasticMQ";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.java.clone().into_os_string()];
        // It lives for seconds, so a fast start matters more than peak performance.
        command.extend(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"].map(OsString::from));
        let folder = folder.display();
        let port = port.to_string();
        for (name, value) in [
            ("rest-sqs.bind-hostname", "127.0.0.1"),
            ("rest-sqs.bind-port", port.as_str()),
            ("rest-sqs.sqs-limits", "strict"),
            ("node-address.host", "127.0.0.1"),
            ("node-address.port", port.as_str()),
            ("rest-stats.enabled", "false"),
            ("messages-storage.enabled", "true"),
            // Without WRITE_DELAY=0 a commit may reach the disk half a second late.
            ("messages-storage.uri", &format!("jdbc:h2:{folder}/messages;WRITE_DELAY=0")),
        ] {
            command.push(format!("-D{name}={value}").into());
        }
        command.extend(["-cp".into(), self.folder.join("*").into(), "org.elasticmq.server.Main".into()]);
        command
    }

    async fn probe(&self, port: u16) -> ProbeResult {
        probe_http(port, "/?Action=ListQueues").await
    }
}
