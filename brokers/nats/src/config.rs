//! What the adapter is told, and the URL that tells it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use landfall_core::{BrokerUrl, Error, Result, Span};

use crate::names::Names;

/// As many shards as a topic may have.
pub(crate) const MOST_PARTITIONS: u32 = 256;

/// How the server is reached and what is made on it.
#[derive(Clone)]
pub struct Options {
    /// `host:port` of at least one server; a cluster tells about its others itself.
    pub servers: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub token: Option<String>,
    /// A file with a JWT and its key, as `nsc` makes them.
    pub credentials: Option<PathBuf>,
    pub tls: bool,
    /// Certificates to trust besides those of the system.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Stands before every name that is made on the server.
    pub prefix: String,
    /// Whether topics come to be with their first use.
    pub create: bool,
    /// Shards of a new topic.
    pub partitions: u32,
    /// Copies of a new topic; `None` is three in a cluster and one elsewhere.
    pub replicas: Option<usize>,
    /// For how long a new topic remembers the ids of its messages.
    pub dedup: Duration,
    /// For how long a new topic keeps messages.
    pub retention: Span,
    /// How large a new topic may become; then it takes nothing more.
    pub max_bytes: Option<i64>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// Unacknowledged deliveries of one subscriber.
    pub in_flight: usize,
    /// What is fetched ahead per shard.
    pub prefetch: usize,
    /// A member of a group that was silent for so long is taken for gone.
    pub session_timeout: Duration,
    /// After so long the server sends again what nobody acknowledged or asked more time for.
    pub ack_wait: Duration,
    /// Whether topics created here allow atomic batches, for other publishers. Landfall publishes key by key.
    pub atomic: bool,
    /// CloudEvents' `source`.
    pub source: String,
    /// The server's monitoring, `http://host:port`, which the doctor asks about syncing and clocks.
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
    /// From `nats://user:password@host:port,host:port?name=value`; `natss:` and `tls:` are `nats:` with `tls=true`.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        let default = Self::default();
        let secure = match url.scheme.as_str() {
            "nats" => false,
            "natss" | "tls" => true,
            other => return Err(Error::invalid(format!("{other}: is no scheme of NATS; nats: and natss: are"))),
        };
        let server = |(host, port): &(String, Option<u16>)| match host.contains(':') {
            true => format!("[{host}]:{}", port.unwrap_or(4222)),
            false => format!("{host}:{}", port.unwrap_or(4222)),
        };
        let file = |text: Option<String>| text.map(PathBuf::from);
        let certificate = match (file(url.take("certificate")), file(url.take("key"))) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(Error::invalid("the broker URL must give certificate and key together")),
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

    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let say = |sentence: String| Err(Error::invalid(sentence));
        if self.partitions == 0 || self.partitions > MOST_PARTITIONS {
            return say(format!("partitions is {}; it must be 1 to {MOST_PARTITIONS}", self.partitions));
        }
        if self.replicas.is_some_and(|replicas| !matches!(replicas, 1 | 3 | 5)) {
            return say("replicas must be 1, 3 or 5: a majority of two is both".into());
        }
        if self.in_flight == 0 || self.prefetch == 0 {
            return say("in_flight and prefetch must be at least 1".into());
        }
        for (name, time) in
            [("timeout", self.timeout), ("session_timeout", self.session_timeout), ("ack_wait", self.ack_wait)]
        {
            if time < Duration::from_millis(100) {
                return say(format!("{name} is {time:?}; it must be at least 100ms"));
            }
        }
        if self.servers.is_empty() {
            return say("there must be at least one server".into());
        }
        Names::new(&self.prefix).map(drop)
    }
}

fn time(url: &mut BrokerUrl, name: &'static str, default: Duration) -> Result<Duration> {
    let given: Option<Span> = url.take_parsed(name, "a time such as 5s")?;
    let endless = || Error::invalid(format!("the broker URL says {name}=forever; it must have an end"));
    given.map_or(Ok(default), |span| span.time().ok_or_else(endless))
}

impl fmt::Debug for Options {
    /// Without password and token.
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
    fn every_parameter_of_a_url_is_understood() {
        let url = "natss://shop:s%40fe@a:4333,[::1]?prefix=shop.&partitions=4&replicas=3&dedup=10m&retention=7d&\
                   timeout=2s&in_flight=50&prefetch=10&session_timeout=3s&ack_wait=20s&create=false&atomic=false&source=/shop&\
                   max_bytes=1000&ca=/ca.pem&certificate=/c.pem&key=/k.pem&monitor=http://a:8222&token=t&credentials=/x.creds";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.servers, ["a:4333", "[::1]:4222"]);
        assert_eq!((options.tls, options.create, options.atomic), (true, false, false));
        assert_eq!((options.partitions, options.replicas), (4, Some(3)));
        assert_eq!(options.dedup, Duration::from_secs(600));
        let shown = format!("{options:?}");
        assert!(!shown.contains("s@fe") && !shown.contains("token"), "{shown}");
    }

    #[test]
    fn what_cannot_work_is_a_sentence() {
        for (url, sentence) in [
            ("kafka://a", "kafka: is no scheme of NATS; nats: and natss: are"),
            ("nats://a?partitions=0", "partitions is 0; it must be 1 to 256"),
            ("nats://a?replicas=2", "replicas must be 1, 3 or 5: a majority of two is both"),
            ("nats://a?timeout=forever", "the broker URL says timeout=forever; it must have an end"),
            ("nats://a?certificate=x", "the broker URL must give certificate and key together"),
            ("nats://a?prefix=a b", "prefix \"a b\" contains ' '; only letters, digits, '.', '_' and '-' are allowed"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), sentence, "{url}");
        }
    }
}
