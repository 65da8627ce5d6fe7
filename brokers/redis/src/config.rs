//! How Redis is worked with, from a URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use landfall_core::{BrokerUrl, Error, Result, Span};

const PORT: u16 = 6379;

/// Where Redis is and how its streams are used.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// With several, the first that answers and is no replica is used.
    pub hosts: Vec<(String, u16)>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// The number that `SELECT` takes.
    pub database: u32,
    pub tls: bool,
    /// A file of certificates in PEM form to trust in place of the system's.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and its key, in PEM form, for a server that asks for them.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// What the name of every key begins with.
    pub prefix: String,
    /// Streams per topic, for topics that are made from now on.
    pub partitions: u32,
    /// Whether a topic comes to be when it is first published to or subscribed to.
    pub create: bool,
    /// For how long, at least, a message's id is remembered, so that a copy is not stored again. Zero: not at all.
    pub dedup: Duration,
    /// How many replicas must have a message before it counts as accepted.
    pub replicas: u32,
    /// How long a message stays after every group has finished it.
    pub retention: Span,
    /// How often whoever reads a stream removes what has stayed long enough.
    pub trim_every: Duration,
    /// How long a stream is left to a member that gives no sign of life.
    pub lease: Duration,
    /// The most messages that a subscriber holds unacknowledged.
    pub in_flight: usize,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// What stands in `ce_source`.
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
    /// From `redis://user:password@host:port,host:port/database?…`, or `rediss://…` for TLS.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        let mut options = Self { tls: url.scheme == "rediss", ..Self::default() };
        options.hosts = url.hosts.iter().map(|(host, port)| (host.clone(), port.unwrap_or(PORT))).collect();
        (options.user, options.password) = (url.user.take(), url.password.take());
        if !url.path.is_empty() {
            let wrong = |_| Error::invalid(format!("redis: {:?} is not the number of a database", url.path));
            options.database = url.path.parse().map_err(wrong)?;
        }
        set(&mut options.prefix, url.take("prefix"));
        set(&mut options.source, url.take("source"));
        options.ca = url.take("ca").map(PathBuf::from);
        options.certificate = match (url.take("certificate"), url.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(Error::invalid("the broker URL must give certificate and key together")),
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

    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |sentence: &str| Err(Error::invalid(format!("redis: {sentence}")));
        if self.hosts.is_empty() {
            return refuse("there is no host");
        }
        // Whoever names them believes that the way is safe.
        if !self.tls && (self.ca.is_some() || self.certificate.is_some()) {
            return refuse("ca, certificate and key mean something only with rediss: or tls=true");
        }
        // Braces decide in which slot of a cluster a key lies, and the names here have their own.
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
            return refuse("lease must be at least 300ms: it is renewed three times as often");
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() || self.trim_every.is_zero() {
            return refuse("timeout, connect_timeout and trim_every must be more than nothing");
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
    /// A time that has an end.
    struct Bounded(Duration);

    impl FromStr for Bounded {
        type Err = Error;

        fn from_str(text: &str) -> Result<Self> {
            text.parse::<Span>()?.time().map(Self).ok_or_else(|| Error::invalid("a time with an end"))
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
    fn every_parameter_is_taken() {
        let url = "rediss://shop:s%3Acret@a:7000,b/3?prefix=shop:&source=shop&ca=/etc/ca.pem&certificate=own.pem&key=own.key\
                   &create=false&partitions=4&replicas=1&in_flight=50&retention=forever&dedup=5m&trim_every=5s\
                   &lease=3s&timeout=2s&connect_timeout=1s";
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
    fn what_is_left_out_is_the_default() {
        assert_eq!(Options::from_url("redis://127.0.0.1").unwrap(), Options::default());
    }

    #[test]
    fn what_cannot_work_is_a_sentence() {
        for (url, sentence) in [
            ("redis://a/shop", r#"redis: "shop" is not the number of a database"#),
            (
                "redis://a?prefix={x}",
                "redis: the prefix must be at most 100 characters, without braces and control characters",
            ),
            ("redis://a?ca=x", "redis: ca, certificate and key mean something only with rediss: or tls=true"),
            ("rediss://a?key=x", "the broker URL must give certificate and key together"),
            ("redis://a?partitions=0", "redis: partitions must be between 1 and 1024"),
            ("redis://a?lease=1ms", "redis: lease must be at least 300ms: it is renewed three times as often"),
            ("redis://a?timeout=forever", "the broker URL says timeout=forever; it must be a time such as 10s"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), sentence);
        }
    }
}
