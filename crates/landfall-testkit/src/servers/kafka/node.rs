//! One node: its folder, `server.properties`, command line and readiness probe.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::RwLock;

use super::{KafkaOptions, KafkaServer, missing};
use crate::servers::account::Account;
use crate::servers::daemon::{self, ProbeResult, Program, services_folder, unavailable};
use crate::servers::watchdog::StopSignal;

/// A member of the controller quorum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Voter {
    pub(super) node: u32,
    pub(super) port: u16,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    java: PathBuf,
    jars: PathBuf,
    number: u32,
    voters: Vec<Voter>,
    /// The listener between nodes and for the readiness probe: without authentication and TLS.
    inside_port: u16,
    options: Arc<RwLock<KafkaOptions>>,
}

impl Node {
    /// Writes the folder that `kafka-storage format` would create: one file, because the voters are static.
    pub(super) fn prepare(
        number: u32,
        voters: Vec<Voter>,
        options: Arc<RwLock<KafkaOptions>>,
        folder: &Path,
        account: Option<Account>,
    ) -> Result<Self> {
        let jars = services_folder().join("kafka/libs");
        if !jars.is_dir() {
            return Err(missing());
        }
        let java = daemon::find_program("java", "openjdk-17-jre-headless")?;
        let data = folder.join("data");
        let properties = format!("version=1\ncluster.id=landfallAAAAAAAAAAAAAA\nnode.id={number}\n");
        let failed = |error| unavailable("cannot create the data folder of a Kafka node", error);
        std::fs::create_dir(&data).map_err(failed)?;
        std::fs::write(data.join("meta.properties"), properties).map_err(failed)?;
        if let Some(Account { uid, gid }) = account {
            std::os::unix::fs::chown(&data, Some(uid), Some(gid)).map_err(failed)?;
            std::os::unix::fs::chown(data.join("meta.properties"), Some(uid), Some(gid)).map_err(failed)?;
        }
        Ok(Self { java, jars, number, voters, inside_port: daemon::free_port()?, options })
    }

    fn properties(&self, options: &KafkaOptions, folder: &Path, port: u16) -> String {
        let Self { number, inside_port, voters, .. } = self;
        let controller = voters.iter().find(|voter| voter.node == *number).map_or(0, |voter| voter.port);
        let voters: Vec<_> = voters.iter().map(|voter| format!("{}@127.0.0.1:{}", voter.node, voter.port)).collect();
        let copies = voters.len().to_string();
        let client = match (options.accounts.is_empty(), options.certificate.is_none()) {
            (true, true) => "PLAINTEXT",
            (true, false) => "SSL",
            (false, true) => "SASL_PLAINTEXT",
            (false, false) => "SASL_SSL",
        };
        let mut listeners = format!("CLIENT://127.0.0.1:{port},INSIDE://127.0.0.1:{inside_port}");
        let mut advertised = listeners.clone();
        if let Some((port, advertised_port)) = options.proxied {
            listeners += &format!(",PROXIED://127.0.0.1:{port}");
            advertised += &format!(",PROXIED://127.0.0.1:{advertised_port}");
        }
        listeners += &format!(",CONTROLLER://127.0.0.1:{controller}");
        let mut settings = vec![
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", number.to_string()),
            ("controller.quorum.voters", voters.join(",")),
            ("listeners", listeners),
            ("advertised.listeners", advertised),
            (
                "listener.security.protocol.map",
                format!("CLIENT:{client},INSIDE:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"),
            ),
            ("inter.broker.listener.name", "INSIDE".into()),
            ("controller.listener.names", "CONTROLLER".into()),
            ("log.dirs", folder.join("data").display().to_string()),
            ("auto.create.topics.enable", "false".into()),
            ("offsets.topic.replication.factor", copies.clone()),
            ("offsets.topic.num.partitions", "3".into()),
            ("transaction.state.log.replication.factor", copies),
            ("transaction.state.log.num.partitions", "1".into()),
            ("transaction.state.log.min.isr", "1".into()),
            // Most tests have one group member, which should not wait for others.
            ("group.initial.rebalance.delay.ms", "0".into()),
            // Members of a killed process must expire within the time of a test.
            ("group.min.session.timeout.ms", "1000".into()),
            // A dead node is fenced after this time, and only then may a killed node register again.
            ("broker.session.timeout.ms", "3000".into()),
            ("broker.heartbeat.interval.ms", "300".into()),
            ("log.cleaner.enable", "false".into()),
        ];
        if let Some((certificate, key)) = &options.certificate {
            let inline = |pem: &str| pem.trim().replace('\n', "\\n");
            settings.push(("ssl.keystore.type", "PEM".into()));
            settings.push(("ssl.keystore.certificate.chain", inline(certificate)));
            settings.push(("ssl.keystore.key", inline(key)));
        }
        if !options.accounts.is_empty() {
            let accounts: String =
                options.accounts.iter().map(|(name, password)| format!(" user_{name}=\"{password}\"")).collect();
            let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
            settings.push(("sasl.enabled.mechanisms", "PLAIN".into()));
            settings.push(("listener.name.client.plain.sasl.jaas.config", format!("{module} required{accounts};")));
            settings.push(("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".into()));
            settings.push(("super.users", format!("User:ANONYMOUS;User:{}", KafkaServer::ADMIN)));
        }
        // If a name occurs twice, Java uses the last line.
        settings.extend(options.settings.iter().cloned());
        settings.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }
}

impl Program for Node {
    const NAME: &'static str = "Kafka";
    const STOP_SIGNAL: StopSignal = StopSignal::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let file = folder.join("server.properties");
        // The lock is free during a start. If the file cannot be written, the node reports that it is missing.
        if let Ok(options) = self.options.try_read() {
            let _ = std::fs::write(&file, self.properties(&options, folder, port));
        }
        let mut command = vec![self.java.clone().into_os_string()];
        command.extend(["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC"].map(OsString::from));
        if !self.options.try_read().is_ok_and(|options| options.compiled) {
            command.push("-XX:TieredStopAtLevel=1".into());
        }
        command.extend(["-cp".into(), self.jars.join("*").into(), "kafka.Kafka".into(), file.into()]);
        command
    }

    /// A node that has not yet joined the cluster lists no brokers.
    async fn probe(&self, _port: u16) -> ProbeResult {
        // A metadata request, version 1, for no topics. The response has a correlation id, then the number of brokers.
        const REQUEST: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 255, 255, 0, 0, 0, 0];
        let mut stream = TcpStream::connect(("127.0.0.1", self.inside_port)).await?;
        stream.write_all(&REQUEST).await?;
        let mut response = [0; 12];
        stream.read_exact(&mut response).await?;
        match response[8..] {
            [0, 0, 0, nodes] if usize::from(nodes) > self.voters.len() / 2 => Ok(()),
            _ => Err("the node has not joined the cluster yet".into()),
        }
    }
}
