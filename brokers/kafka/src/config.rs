//! The options of a `kafka:` URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use landfall_core::adapter::BrokerUrl;
use landfall_core::{Error, Limits, Result, Span};

/// The options of a `kafka:` URL.
///
/// ```
/// use landfall_kafka::Options;
///
/// let options = Options::from_url("kafka://a:9092,b:9092?partitions=12&prefix=shop.")?;
/// assert_eq!((options.hosts.len(), options.partitions), (2, 12));
/// # Ok::<(), landfall_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    /// Bootstrap servers, as `host:port`. The client learns the other nodes from them.
    pub hosts: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// SASL mechanism for `user` and `password`: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub sasl: String,
    pub tls: bool,
    /// CA certificates that verify the cluster, in place of the system's trust store.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key, for a cluster that requires mutual TLS.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Prefix of every topic and group name of this installation on the cluster.
    pub prefix: String,
    /// Value of the header `ce_source`.
    pub source: String,
    /// Whether the first publish or subscribe creates a missing topic.
    pub create: bool,
    /// Number of partitions of a topic that Landfall creates.
    pub partitions: u32,
    /// Replication factor of a topic that Landfall creates. Default: three, or the number of nodes if there are fewer.
    pub replication: Option<u16>,
    /// Retention time of a topic that Landfall creates.
    pub retention: Span,
    /// A topic that Landfall creates is flushed to disk after this number of messages; `None` leaves it to the system.
    pub flush_messages: Option<u64>,
    /// A topic that Landfall creates is flushed to disk after this time; `None` leaves it to the system.
    pub flush_interval: Option<Duration>,
    /// Size limit of a message, including key and headers.
    pub message_bytes: usize,
    pub acks: Acks,
    /// `none`, `gzip`, `lz4` or `snappy`.
    pub compression: String,
    /// Whether a relay publishes in transactions, so that the successor on its shards can fence it.
    pub fencing: bool,
    /// How long the producer collects messages for a batch.
    pub linger: Duration,
    /// A message without an answer for this long is [`Outcome::Unknown`](landfall_core::Outcome::Unknown).
    pub timeout: Duration,
    /// A cluster that does not answer within this time counts as unavailable.
    pub connect_timeout: Duration,
    /// The group removes a member that sent no heartbeat for this long.
    pub session_timeout: Duration,
    /// Interval at which a member commits its offsets.
    pub commit_interval: Duration,
    /// Limit of unacknowledged deliveries per subscriber.
    pub in_flight: usize,
    /// Static membership: a member that returns under this name causes no rebalance (`group.instance.id`).
    pub instance: Option<String>,
}

/// Which replicas must have a message before it counts as accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// All in-sync replicas. The only level with which Landfall's guarantees hold.
    All,
    /// The leader only. Messages that it has not replicated are lost with it.
    Leader,
    /// None: a sent message counts as accepted.
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
            flush_messages: None,
            flush_interval: None,
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
            return Err(Error::invalid("a kafka: URL has no path; use prefix= to prefix topic names"));
        }
        let defaults = Self::default();
        let options = Self {
            hosts: url.hosts.iter().map(|(host, port)| address(host, port.unwrap_or(9092))).collect(),
            user: url.user.take(),
            password: url.password.take(),
            sasl: one_of(&mut url, "sasl", &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])?.unwrap_or(defaults.sasl),
            tls: url.take_parsed("tls", BOOL)?.unwrap_or(defaults.tls),
            ca: url.take("ca").map(PathBuf::from),
            certificate: url.take("certificate").map(PathBuf::from),
            key: url.take("key").map(PathBuf::from),
            prefix: url.take("prefix").unwrap_or_default(),
            source: url.take("source").unwrap_or(defaults.source),
            create: url.take_parsed("create", BOOL)?.unwrap_or(defaults.create),
            partitions: url.take_parsed("partitions", "a number")?.unwrap_or(defaults.partitions),
            replication: url.take_parsed("replication", "a number")?,
            retention: url.take_parsed("retention", "a time such as 45d, or forever")?.unwrap_or(defaults.retention),
            flush_messages: url.take_parsed("flush_messages", "a number")?,
            flush_interval: time(&mut url, "flush_interval")?,
            message_bytes: url.take_parsed("message_bytes", "a number of bytes")?.unwrap_or(defaults.message_bytes),
            acks: url.take_parsed("acks", "all, 1 or 0")?.unwrap_or(defaults.acks),
            compression: one_of(&mut url, "compression", &["none", "gzip", "lz4", "snappy"])?
                .unwrap_or(defaults.compression),
            fencing: url.take_parsed("fencing", BOOL)?.unwrap_or(defaults.fencing),
            linger: time(&mut url, "linger")?.unwrap_or(defaults.linger),
            timeout: time(&mut url, "timeout")?.unwrap_or(defaults.timeout),
            connect_timeout: time(&mut url, "connect_timeout")?.unwrap_or(defaults.connect_timeout),
            session_timeout: time(&mut url, "session_timeout")?.unwrap_or(defaults.session_timeout),
            commit_interval: time(&mut url, "commit_interval")?.unwrap_or(defaults.commit_interval),
            in_flight: url.take_parsed("in_flight", "a number")?.unwrap_or(defaults.in_flight),
            instance: url.take("instance"),
        };
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |reason: &str| Err(Error::invalid(reason));
        if let Some(character) = self.prefix.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
            return invalid(&format!("prefix contains {character:?}; Kafka allows letters, digits, '.', '_' and '-'"));
        }
        match self {
            _ if self.partitions == 0 || self.in_flight == 0 => invalid("partitions and in_flight must be at least 1"),
            _ if self.flush_messages == Some(0) || self.flush_interval == Some(Duration::ZERO) => {
                invalid("flush_messages and flush_interval must be at least 1")
            }
            _ if self.replication == Some(0) => invalid("replication must be at least 1"),
            _ if self.fencing && self.acks != Acks::All => invalid("fencing=true needs acks=all"),
            _ if self.user.is_some() != self.password.is_some() => invalid("user and password must be set together"),
            _ if self.certificate.is_some() != self.key.is_some() => {
                invalid("certificate and key must be set together")
            }
            _ if !self.tls && (self.ca.is_some() || self.certificate.is_some()) => {
                invalid("ca, certificate and key need tls=true")
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
    let infinite = || Error::invalid(format!("the broker URL says {name}=forever; it must be a time"));
    span.map(|span| span.time().ok_or_else(infinite)).transpose()
}

impl fmt::Debug for Options {
    /// Omits the password.
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
    fn url_sets_every_option() {
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
    fn invalid_urls_are_refused_with_a_reason() {
        for (url, reason) in [
            ("nats://a", "nats: is not kafka:"),
            ("kafka://a/x", "a kafka: URL has no path; use prefix= to prefix topic names"),
            ("kafka://a?acks=2", "the broker URL says acks=2; it must be all, 1 or 0"),
            (
                "kafka://a?compression=zstd",
                "the broker URL says compression=zstd; it must be one of none, gzip, lz4, snappy",
            ),
            ("kafka://a?timeout=forever", "the broker URL says timeout=forever; it must be a time"),
            ("kafka://a?prefix=a%20b", "prefix contains ' '; Kafka allows letters, digits, '.', '_' and '-'"),
            ("kafka://a?fencing=true&acks=1", "fencing=true needs acks=all"),
            ("kafka://user@a", "user and password must be set together"),
            ("kafka://a?ca=x", "ca, certificate and key need tls=true"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), reason);
        }
        assert!(Options::from_url("kafka://a?prefx=b").unwrap_err().to_string().contains("prefx"));
    }
}
