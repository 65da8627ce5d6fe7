//! Where the cluster is and how it is worked with.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use landfall_core::{BrokerUrl, Error, Limits, Result, Span};

/// Everything that a `kafka:` URL can say.
#[derive(Clone)]
pub struct Options {
    /// `host:port` of some nodes; they tell about the others.
    pub hosts: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// How `user` and `password` are shown: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub sasl: String,
    pub tls: bool,
    /// The certificates that the cluster's are checked against, in place of the machine's own.
    pub ca: Option<PathBuf>,
    /// A certificate of our own and its key, where the cluster asks for one.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// What every topic and group of this installation begins with on the cluster.
    pub prefix: String,
    /// What stands in `ce_source`.
    pub source: String,
    /// Whether topics come to be when they are first published to or subscribed to.
    pub create: bool,
    /// Partitions of a topic that is created here.
    pub partitions: u32,
    /// Copies of a topic that is created here; without it three, or as many as there are nodes.
    pub replication: Option<u16>,
    /// How long a topic that is created here keeps its messages.
    pub retention: Span,
    /// The largest message, with key and headers.
    pub message_bytes: usize,
    pub acks: Acks,
    /// `none`, `gzip`, `lz4` or `snappy`.
    pub compression: String,
    /// Whether a relay publishes in transactions, so that whoever takes its shards over can silence it.
    pub fencing: bool,
    /// How long messages are gathered before they are sent.
    pub linger: Duration,
    /// After this a message that nobody answered for is [`Outcome::Unknown`](landfall_core::Outcome::Unknown).
    pub timeout: Duration,
    /// After this a cluster that does not answer cannot be reached.
    pub connect_timeout: Duration,
    /// After this a member that was not heard of has left its group.
    pub session_timeout: Duration,
    /// How often the progress of a group is saved.
    pub commit_interval: Duration,
    /// Deliveries that one subscriber may have unfinished.
    pub in_flight: usize,
    /// The name under which this member may come back to its group without disturbing it (`group.instance.id`).
    pub instance: Option<String>,
}

/// Who must have a message before it counts as accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Every copy that is in step. The only one that keeps the promises.
    All,
    /// The leader alone: what it had not copied is lost with it.
    Leader,
    /// Nobody: sent is accepted.
    None,
}

impl Acks {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Acks::All => "all",
            Acks::Leader => "1",
            Acks::None => "0",
        }
    }
}

impl FromStr for Acks {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        [Acks::All, Acks::Leader, Acks::None].into_iter().find(|acks| acks.as_str() == text).ok_or(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: vec!["localhost:9092".into()],
            user: None,
            password: None,
            sasl: "PLAIN".into(),
            tls: false,
            ca: None,
            certificate: None,
            key: None,
            prefix: String::new(),
            source: "landfall".into(),
            create: true,
            partitions: 12,
            replication: None,
            retention: Span::Forever,
            message_bytes: 2 * Limits::default().payload_bytes,
            acks: Acks::All,
            compression: "none".into(),
            fencing: false,
            linger: Duration::from_millis(1),
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            session_timeout: Duration::from_secs(45),
            commit_interval: Duration::from_millis(500),
            in_flight: 1_000,
            instance: None,
        }
    }
}

impl Options {
    pub fn from_url(url: &str) -> Result<Self> {
        const BOOL: &str = "true or false";
        let mut url = BrokerUrl::parse(url)?;
        if url.scheme != "kafka" {
            return Err(Error::invalid(format!("{}: is not kafka:", url.scheme)));
        }
        if !url.path.is_empty() {
            return Err(Error::invalid("a kafka: URL has no path; names begin with what prefix= says"));
        }
        let usual = Self::default();
        let options = Self {
            hosts: url.hosts.iter().map(|(host, port)| address(host, port.unwrap_or(9092))).collect(),
            user: url.user.take(),
            password: url.password.take(),
            sasl: one_of(&mut url, "sasl", &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])?.unwrap_or(usual.sasl),
            tls: url.take_parsed("tls", BOOL)?.unwrap_or(usual.tls),
            ca: url.take("ca").map(PathBuf::from),
            certificate: url.take("certificate").map(PathBuf::from),
            key: url.take("key").map(PathBuf::from),
            prefix: url.take("prefix").unwrap_or_default(),
            source: url.take("source").unwrap_or(usual.source),
            create: url.take_parsed("create", BOOL)?.unwrap_or(usual.create),
            partitions: url.take_parsed("partitions", "a number")?.unwrap_or(usual.partitions),
            replication: url.take_parsed("replication", "a number")?,
            retention: url.take_parsed("retention", "a time such as 45d, or forever")?.unwrap_or(usual.retention),
            message_bytes: url.take_parsed("message_bytes", "a number of bytes")?.unwrap_or(usual.message_bytes),
            acks: url.take_parsed("acks", "all, 1 or 0")?.unwrap_or(usual.acks),
            compression: one_of(&mut url, "compression", &["none", "gzip", "lz4", "snappy"])?
                .unwrap_or(usual.compression),
            fencing: url.take_parsed("fencing", BOOL)?.unwrap_or(usual.fencing),
            linger: time(&mut url, "linger")?.unwrap_or(usual.linger),
            timeout: time(&mut url, "timeout")?.unwrap_or(usual.timeout),
            connect_timeout: time(&mut url, "connect_timeout")?.unwrap_or(usual.connect_timeout),
            session_timeout: time(&mut url, "session_timeout")?.unwrap_or(usual.session_timeout),
            commit_interval: time(&mut url, "commit_interval")?.unwrap_or(usual.commit_interval),
            in_flight: url.take_parsed("in_flight", "a number")?.unwrap_or(usual.in_flight),
            instance: url.take("instance"),
        };
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |sentence: &str| Err(Error::invalid(sentence));
        if let Some(character) = self.prefix.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
            return wrong(&format!("prefix contains {character:?}; Kafka takes letters, digits, '.', '_' and '-'"));
        }
        match self {
            _ if self.partitions == 0 || self.in_flight == 0 => wrong("partitions and in_flight must be at least 1"),
            _ if self.replication == Some(0) => wrong("replication must be at least 1"),
            _ if self.fencing && self.acks != Acks::All => wrong("fencing=true needs acks=all"),
            _ if self.user.is_some() != self.password.is_some() => wrong("a user needs a password, and it a user"),
            _ if self.certificate.is_some() != self.key.is_some() => wrong("a certificate needs its key, and it that"),
            _ if !self.tls && (self.ca.is_some() || self.certificate.is_some()) => {
                wrong("ca, certificate and key mean something only with tls=true")
            }
            _ => Ok(()),
        }
    }
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn one_of(url: &mut BrokerUrl, name: &'static str, known: &[&str]) -> Result<Option<String>> {
    match url.take(name) {
        Some(value) if !known.contains(&value.as_str()) => {
            Err(Error::invalid(format!("the broker URL says {name}={value}; it must be one of {}", known.join(", "))))
        }
        value => Ok(value),
    }
}

fn time(url: &mut BrokerUrl, name: &'static str) -> Result<Option<Duration>> {
    let span: Option<Span> = url.take_parsed(name, "a time such as 500ms or 30s")?;
    let endless = || Error::invalid(format!("the broker URL says {name}=forever; it must be a time"));
    span.map(|span| span.time().ok_or_else(endless)).transpose()
}

impl fmt::Debug for Options {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("acks", &self.acks)
            .field("create", &self.create)
            .field("partitions", &self.partitions)
            .field("replication", &self.replication)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_everything() {
        let url = "kafka://shop:se%40cret@a,b:9093,[::1]?tls=true&ca=/etc/ca.pem&sasl=SCRAM-SHA-512&prefix=shop.\
                   &acks=1&create=false&partitions=3&replication=2&retention=45d&timeout=10s&linger=0\
                   &in_flight=5&compression=lz4&instance=one";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.hosts, ["a:9092", "b:9093", "[::1]:9092"]);
        assert_eq!((options.user.as_deref(), options.password.as_deref()), (Some("shop"), Some("se@cret")));
        assert_eq!((options.acks, options.create, options.partitions), (Acks::Leader, false, 3));
        assert_eq!((options.replication, options.retention), (Some(2), Span::days(45)));
        assert_eq!((options.timeout, options.linger), (Duration::from_secs(10), Duration::ZERO));
        assert!(!format!("{options:?}").contains("se@cret"), "{options:?}");
    }

    #[test]
    fn what_is_wrong_is_a_sentence() {
        for (url, sentence) in [
            ("nats://a", "nats: is not kafka:"),
            ("kafka://a/x", "a kafka: URL has no path; names begin with what prefix= says"),
            ("kafka://a?acks=2", "the broker URL says acks=2; it must be all, 1 or 0"),
            (
                "kafka://a?compression=zstd",
                "the broker URL says compression=zstd; it must be one of none, gzip, lz4, snappy",
            ),
            ("kafka://a?timeout=forever", "the broker URL says timeout=forever; it must be a time"),
            ("kafka://a?prefix=a%20b", "prefix contains ' '; Kafka takes letters, digits, '.', '_' and '-'"),
            ("kafka://a?fencing=true&acks=1", "fencing=true needs acks=all"),
            ("kafka://user@a", "a user needs a password, and it a user"),
            ("kafka://a?ca=x", "ca, certificate and key mean something only with tls=true"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), sentence);
        }
        assert!(Options::from_url("kafka://a?prefx=b").unwrap_err().to_string().contains("prefx"));
    }
}
