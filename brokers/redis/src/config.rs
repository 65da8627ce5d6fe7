//! The options of a `redis:` URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use landfall_core::adapter::BrokerUrl;
use landfall_core::{Error, Result, Span};

const PORT: u16 = 6379;

/// The options of a `redis:` URL.
///
/// ```
/// use landfall_redis::Options;
///
/// let options = Options::from_url("redis://a:6379/2?replicas=1")?;
/// assert_eq!((options.database, options.replicas), (2, 1));
/// # Ok::<(), landfall_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// If there are several, the first that answers and is a master is used.
    pub hosts: Vec<(String, u16)>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Number of the database, as for `SELECT`.
    pub database: u32,
    pub tls: bool,
    /// CA certificates in PEM format, in place of the system's trust store.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key in PEM format, for a server that requires mutual TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Prefix of every key in Redis.
    pub prefix: String,
    /// Number of streams of a new topic.
    pub partitions: u32,
    /// Whether the first publish or subscribe creates a missing topic.
    pub create: bool,
    /// Deduplication window: how long, at least, a message's id is remembered. Zero turns deduplication off.
    pub dedup: Duration,
    /// Number of replicas that must have a message before it counts as accepted.
    pub replicas: u32,
    /// How long a message is kept after every group has acknowledged it.
    pub retention: Span,
    /// Interval at which the reader of a stream removes expired messages.
    pub trim_every: Duration,
    /// Lease time of a stream: another member takes it over from a member that is silent for this long.
    pub lease: Duration,
    /// Limit of unacknowledged deliveries per subscriber.
    pub in_flight: usize,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Timeout of connecting.
    pub connect_timeout: Duration,
    /// Value of the header `ce_source`.
    pub source: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: vec![("127.0.0.1".into(), PORT)],
            user: None,
            password: None,
            database: 0,
            tls: false,
            ca: None,
            certificate: None,
            prefix: "landfall:".into(),
            partitions: 8,
            create: true,
            dedup: Duration::from_secs(120),
            replicas: 0,
            retention: Span::days(1),
            trim_every: Duration::from_secs(60),
            lease: Duration::from_secs(10),
            in_flight: 1_000,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            source: "landfall".into(),
        }
    }
}

impl Options {
    /// Parses `redis://user:password@host:port,host:port/database?…`, or `rediss://…` for TLS.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        let mut options = Self { tls: url.scheme == "rediss", ..Self::default() };
        options.hosts = url.hosts.iter().map(|(host, port)| (host.clone(), port.unwrap_or(PORT))).collect();
        (options.user, options.password) = (url.user.take(), url.password.take());
        if !url.path.is_empty() {
            let invalid = |_| Error::invalid(format!("redis: {:?} is not a database number", url.path));
            options.database = url.path.parse().map_err(invalid)?;
        }
        set(&mut options.prefix, url.take("prefix"));
        set(&mut options.source, url.take("source"));
        options.ca = url.take("ca").map(PathBuf::from);
        options.certificate = match (url.take("certificate"), url.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(Error::invalid("certificate and key must be set together")),
        };
        set(&mut options.tls, url.take_parsed("tls", "true or false")?);
        set(&mut options.create, url.take_parsed("create", "true or false")?);
        set(&mut options.partitions, url.take_parsed("partitions", "a number")?);
        set(&mut options.replicas, url.take_parsed("replicas", "a number")?);
        set(&mut options.in_flight, url.take_parsed("in_flight", "a number")?);
        set(&mut options.retention, url.take_parsed("retention", "a time such as 36h, or forever")?);
        set(&mut options.dedup, time(&mut url, "dedup")?);
        set(&mut options.trim_every, time(&mut url, "trim_every")?);
        set(&mut options.lease, time(&mut url, "lease")?);
        set(&mut options.timeout, time(&mut url, "timeout")?);
        set(&mut options.connect_timeout, time(&mut url, "connect_timeout")?);
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Refuses invalid options.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |reason: &str| Err(Error::invalid(format!("redis: {reason}")));
        if self.hosts.is_empty() {
            return refuse("the broker URL has no host");
        }
        // A URL with these options but without TLS would look secure without being so.
        if !self.tls && (self.ca.is_some() || self.certificate.is_some()) {
            return refuse("ca, certificate and key need rediss: or tls=true");
        }
        // Braces select the cluster slot of a key, and the key names contain their own.
        if self.prefix.len() > 100 || self.prefix.chars().any(|c| c.is_control() || matches!(c, '{' | '}')) {
            return refuse("the prefix must be at most 100 characters, without braces and control characters");
        }
        if !(1..=1024).contains(&self.partitions) {
            return refuse("partitions must be between 1 and 1024");
        }
        if self.in_flight == 0 {
            return refuse("in_flight must be at least 1");
        }
        if self.lease < Duration::from_millis(300) {
            return refuse("lease must be at least 300ms; it is renewed every third of that time");
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() || self.trim_every.is_zero() {
            return refuse("timeout, connect_timeout and trim_every must be greater than 0");
        }
        Ok(())
    }
}

fn set<T>(option: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *option = given;
    }
}

fn time(url: &mut BrokerUrl, name: &'static str) -> Result<Option<Duration>> {
    /// A finite time.
    struct Bounded(Duration);

    impl FromStr for Bounded {
        type Err = Error;

        fn from_str(text: &str) -> Result<Self> {
            text.parse::<Span>()?.time().map(Self).ok_or_else(|| Error::invalid("a finite time"))
        }
    }

    Ok(url.take_parsed::<Bounded>(name, "a time such as 10s")?.map(|Bounded(time)| time))
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_sets_every_option() {
        let url = "rediss://shop:s%3Acret@a:7000,b/3?prefix=shop:&source=shop&ca=/etc/ca.pem&certificate=own.pem\
                   &key=own.key&create=false&partitions=4&replicas=1&in_flight=50&retention=forever&dedup=5m\
                   &trim_every=5s&lease=3s&timeout=2s&connect_timeout=1s";
        let options = Options::from_url(url).unwrap();
        let expected = Options {
            hosts: vec![("a".into(), 7000), ("b".into(), 6379)],
            user: Some("shop".into()),
            password: Some("s:cret".into()),
            database: 3,
            tls: true,
            ca: Some("/etc/ca.pem".into()),
            certificate: Some(("own.pem".into(), "own.key".into())),
            prefix: "shop:".into(),
            partitions: 4,
            create: false,
            dedup: Duration::from_secs(300),
            replicas: 1,
            retention: Span::Forever,
            trim_every: Duration::from_secs(5),
            lease: Duration::from_secs(3),
            in_flight: 50,
            timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            source: "shop".into(),
        };
        assert!(options == expected, "{options:?}");
        assert!(!format!("{options:?}").contains("cret"), "{options:?}");
    }

    #[test]
    fn omitted_options_have_defaults() {
        assert_eq!(Options::from_url("redis://127.0.0.1").unwrap(), Options::default());
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        for (url, reason) in [
            ("redis://a/shop", r#"redis: "shop" is not a database number"#),
            (
                "redis://a?prefix={x}",
                "redis: the prefix must be at most 100 characters, without braces and control characters",
            ),
            ("redis://a?ca=x", "redis: ca, certificate and key need rediss: or tls=true"),
            ("rediss://a?key=x", "certificate and key must be set together"),
            ("redis://a?partitions=0", "redis: partitions must be between 1 and 1024"),
            ("redis://a?lease=1ms", "redis: lease must be at least 300ms; it is renewed every third of that time"),
            ("redis://a?timeout=forever", "the broker URL says timeout=forever; it must be a time such as 10s"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), reason);
        }
    }
}
