//! The options of a `nats:` URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use landfall_core::adapter::BrokerUrl;
use landfall_core::{Error, Result, Span};

use crate::names::Names;

/// Limit of the number of shards of a topic.
pub(crate) const MAX_PARTITIONS: u32 = 256;

/// How to connect to the server, and the settings of streams and consumers that Landfall creates.
///
/// ```
/// use landfall_nats::Options;
///
/// let options = Options::from_url("nats://a:4222,b:4222?replicas=3&dedup=10m")?;
/// assert_eq!((options.servers.len(), options.replicas), (2, Some(3)));
/// # Ok::<(), landfall_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    /// `host:port` of at least one server. The client discovers the other servers of a cluster.
    pub servers: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
    /// Path of a credentials file (JWT and key) that `nsc` created.
    pub credentials: Option<PathBuf>,
    pub tls: bool,
    /// CA certificates to trust in addition to the system's.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Prefix of every stream and subject that Landfall creates.
    pub prefix: String,
    /// Whether the first use creates a missing topic.
    pub create: bool,
    /// Number of shards of a new topic.
    pub partitions: u32,
    /// Replicas of a new topic. `None` means three in a cluster and one on a single server.
    pub replicas: Option<usize>,
    /// Deduplication window of a new topic.
    pub dedup: Duration,
    /// Retention time of a new topic.
    pub retention: Span,
    /// Size limit of a new topic. A full topic refuses messages.
    pub max_bytes: Option<i64>,
    /// Timeout of requests and acknowledgements.
    pub timeout: Duration,
    /// Limit of unacknowledged deliveries per subscriber.
    pub in_flight: usize,
    /// Messages that a member prefetches per shard.
    pub prefetch: usize,
    /// The group treats a member that was silent for this long as dead.
    pub session_timeout: Duration,
    /// The server redelivers a message after this time without an acknowledgement or a request for more time.
    pub ack_wait: Duration,
    /// Whether topics created here allow atomic batches, for other publishers. Landfall publishes key by key.
    pub atomic: bool,
    /// CloudEvents' `source`.
    pub source: String,
    /// The server's monitoring endpoint, `http://host:port`. The doctor reads the sync setting and the clock from it.
    pub monitor: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            servers: vec!["127.0.0.1:4222".into()],
            user: None,
            password: None,
            token: None,
            credentials: None,
            tls: false,
            ca: None,
            certificate: None,
            prefix: String::new(),
            create: true,
            partitions: 8,
            replicas: None,
            dedup: Duration::from_secs(120),
            retention: Span::Forever,
            max_bytes: None,
            timeout: Duration::from_secs(5),
            in_flight: 1_000,
            prefetch: 128,
            session_timeout: Duration::from_secs(10),
            ack_wait: Duration::from_secs(60),
            atomic: true,
            source: "landfall".into(),
            monitor: None,
        }
    }
}

impl Options {
    /// Parses `nats://user:password@host:port,host:port?name=value`. `natss:` and `tls:` mean `nats:` with `tls=true`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        let default = Self::default();
        let secure = match url.scheme.as_str() {
            "nats" => false,
            "natss" | "tls" => true,
            other => return Err(Error::invalid(format!("{other}: is not a NATS scheme; use nats: or natss:"))),
        };
        let server = |(host, port): &(String, Option<u16>)| match host.contains(':') {
            true => format!("[{host}]:{}", port.unwrap_or(4222)),
            false => format!("{host}:{}", port.unwrap_or(4222)),
        };
        let file = |text: Option<String>| text.map(PathBuf::from);
        let certificate = match (file(url.take("certificate")), file(url.take("key"))) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(Error::invalid("certificate and key must be set together")),
        };
        let options = Self {
            servers: url.hosts.iter().map(server).collect(),
            user: url.user.clone(),
            password: url.password.clone(),
            token: url.take("token"),
            credentials: file(url.take("credentials")),
            tls: url.take_parsed("tls", "true or false")?.unwrap_or(secure),
            ca: file(url.take("ca")),
            certificate,
            prefix: url.take("prefix").unwrap_or_default(),
            create: url.take_parsed("create", "true or false")?.unwrap_or(default.create),
            partitions: url.take_parsed("partitions", "a number")?.unwrap_or(default.partitions),
            replicas: url.take_parsed("replicas", "a number")?,
            dedup: time(&mut url, "dedup", default.dedup)?,
            retention: url.take_parsed("retention", "a time such as 7d, or forever")?.unwrap_or(default.retention),
            max_bytes: url.take_parsed("max_bytes", "a number of bytes")?,
            timeout: time(&mut url, "timeout", default.timeout)?,
            in_flight: url.take_parsed("in_flight", "a number")?.unwrap_or(default.in_flight),
            prefetch: url.take_parsed("prefetch", "a number")?.unwrap_or(default.prefetch),
            session_timeout: time(&mut url, "session_timeout", default.session_timeout)?,
            ack_wait: time(&mut url, "ack_wait", default.ack_wait)?,
            atomic: url.take_parsed("atomic", "true or false")?.unwrap_or(default.atomic),
            source: url.take("source").unwrap_or(default.source),
            monitor: url.take("monitor"),
        };
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Refuses invalid options.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid(reason));
        if self.partitions == 0 || self.partitions > MAX_PARTITIONS {
            return invalid(format!("partitions is {}; it must be 1 to {MAX_PARTITIONS}", self.partitions));
        }
        if self.replicas.is_some_and(|replicas| !matches!(replicas, 1 | 3 | 5)) {
            return invalid("replicas must be 1, 3 or 5; an even number tolerates no more failures".into());
        }
        if self.in_flight == 0 || self.prefetch == 0 {
            return invalid("in_flight and prefetch must be at least 1".into());
        }
        for (name, time) in
            [("timeout", self.timeout), ("session_timeout", self.session_timeout), ("ack_wait", self.ack_wait)]
        {
            if time < Duration::from_millis(100) {
                return invalid(format!("{name} is {time:?}; it must be at least 100ms"));
            }
        }
        if self.servers.is_empty() {
            return invalid("the broker URL needs at least one server".into());
        }
        Names::new(&self.prefix).map(drop)
    }
}

fn time(url: &mut BrokerUrl, name: &'static str, default: Duration) -> Result<Duration> {
    let given: Option<Span> = url.take_parsed(name, "a time such as 5s")?;
    let infinite = || Error::invalid(format!("the broker URL says {name}=forever; it must be a time"));
    given.map_or(Ok(default), |span| span.time().ok_or_else(infinite))
}

impl fmt::Debug for Options {
    /// Omits password and token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("servers", &self.servers)
            .field("user", &self.user)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("create", &self.create)
            .field("partitions", &self.partitions)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_sets_every_option() {
        let url = "natss://shop:s%40fe@a:4333,[::1]?prefix=shop.&partitions=4&replicas=3&dedup=10m&retention=7d&\
                   timeout=2s&in_flight=50&prefetch=10&session_timeout=3s&ack_wait=20s&create=false&atomic=false&\
                   source=/shop&max_bytes=1000&ca=/ca.pem&certificate=/c.pem&key=/k.pem&monitor=http://a:8222&token=t&\
                   credentials=/x.creds";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.servers, ["a:4333", "[::1]:4222"]);
        assert_eq!((options.tls, options.create, options.atomic), (true, false, false));
        assert_eq!((options.partitions, options.replicas), (4, Some(3)));
        assert_eq!(options.dedup, Duration::from_secs(600));
        let debug = format!("{options:?}");
        assert!(!debug.contains("s@fe") && !debug.contains("token"), "{debug}");
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        for (url, reason) in [
            ("kafka://a", "kafka: is not a NATS scheme; use nats: or natss:"),
            ("nats://a?partitions=0", "partitions is 0; it must be 1 to 256"),
            ("nats://a?replicas=2", "replicas must be 1, 3 or 5; an even number tolerates no more failures"),
            ("nats://a?timeout=forever", "the broker URL says timeout=forever; it must be a time"),
            ("nats://a?certificate=x", "certificate and key must be set together"),
            ("nats://a?prefix=a b", "prefix \"a b\" contains ' '; only letters, digits, '.', '_' and '-' are allowed"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), reason, "{url}");
        }
    }
}
