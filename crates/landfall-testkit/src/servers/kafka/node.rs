//! One node: its folder, its `server.properties`, its command line, and how one knows that it answers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::RwLock;

use super::{KafkaOptions, KafkaServer, missing};
use crate::servers::account::Account;
use crate::servers::daemon::{self, Answer, Program, services_folder, unavailable};
use crate::servers::watchdog::Ending;

/// A node's place among those that elect.
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
    /// Between nodes, and for the question whether it is up: without accounts and without TLS.
    inside_port: u16,
    options: Arc<RwLock<KafkaOptions>>,
}

impl Node {
    /// A folder with one file in it is all that formatting leaves where the voters are listed by hand.
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
        let failed = |error| unavailable("cannot prepare the folder of a Kafka node", error);
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
        if let Some((listening, told)) = options.proxied {
            listeners += &format!(",PROXIED://127.0.0.1:{listening}");
            advertised += &format!(",PROXIED://127.0.0.1:{told}");
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
            // Tests wait for a member more often than for a crowd.
            ("group.initial.rebalance.delay.ms", "0".into()),
            // The members of a killed process must not be waited for much longer than the test runs.
            ("group.min.session.timeout.ms", "1000".into()),
            // A node that is gone is known to be gone after this, and one that was killed is let in again.
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
        // Of two lines with one name Java takes the later one.
        settings.extend(options.settings.iter().cloned());
        settings.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }
}

impl Program for Node {
    const NAME: &'static str = "Kafka";
    const ENDING: Ending = Ending::Kill;

    fn command(&self, folder: &Path, port: u16) -> Vec<OsString> {
        let file = folder.join("server.properties");
        // Nobody holds the lock across a start. A file that could not be written is said by the node that misses it.
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

    /// A node that is not yet let in by the others lists nobody.
    async fn answers(&self, _port: u16) -> Answer {
        // Metadata, version 1, of no topics: the answer begins with its number and how many nodes there are.
        const QUESTION: [u8; 18] = [0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 255, 255, 0, 0, 0, 0];
        let mut stream = TcpStream::connect(("127.0.0.1", self.inside_port)).await?;
        stream.write_all(&QUESTION).await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        match answer[8..] {
            [0, 0, 0, nodes] if usize::from(nodes) > self.voters.len() / 2 => Ok(()),
            _ => Err("the node is not yet among the brokers".into()),
        }
    }
}
