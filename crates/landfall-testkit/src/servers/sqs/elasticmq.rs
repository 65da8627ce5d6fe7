//! ElasticMQ, with what it has in a database on disk.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landfall_core::{Error, ErrorKind, Result};

use super::answers_http;
use crate::not_run;
use crate::servers::daemon::{self, Answer, Daemon, Program, services_folder};
use crate::servers::watchdog::Ending;

/// An ElasticMQ of this process's own, gone when the process is.
#[derive(Debug)]
pub struct ElasticMq(Daemon<Jars>);

#[derive(Debug, Clone)]
struct Jars {
    java: PathBuf,
    folder: PathBuf,
}

impl ElasticMq {
    /// `None` where there is none; it has been said then, in the name of `test`.
    pub async fn start(test: &str) -> Option<Self> {
        Self::try_start().await.map_err(|error| not_run(test, &error.to_string())).ok()
    }

    async fn try_start() -> Result<Self> {
        let java = daemon::find_program("java", "openjdk-17-jre-headless")?;
        let jars = services_folder().join("elasticmq");
        if !jars.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, "there is no ElasticMQ; scripts/services fetches it"));
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
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let mut command = vec![self.java.clone().into_os_string()];
        // It lives for seconds: what makes it start sooner is worth more than what makes it faster later.
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
            // Without the last part a commit may wait half a second before it is on disk.
            ("messages-storage.uri", &format!("jdbc:h2:{folder}/messages;WRITE_DELAY=0")),
        ] {
            command.push(format!("-D{name}={value}").into());
        }
        command.extend(["-cp".into(), self.folder.join("*").into(), "org.elasticmq.server.Main".into()]);
        command
    }

    async fn answers(&self, port: u16) -> Answer {
        answers_http(port, "/?Action=ListQueues").await
    }
}
