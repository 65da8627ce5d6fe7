//! The options of an `amqp:` URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use landfall_core::adapter::BrokerUrl;
use landfall_core::{Error, Result};

use crate::names::SLOTS;

/// The options of an `amqp:` URL. `Debug` omits passwords.
///
/// ```
/// use landfall_rabbitmq::Options;
///
/// let options = Options::from_url("amqp://user:secret@a,b/shop?partitions=8")?;
/// assert_eq!((options.virtual_host.as_str(), options.partitions), ("shop", 8));
/// # Ok::<(), landfall_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Tried in this order when connecting.
    pub hosts: Vec<(String, u16)>,
    pub user: String,
    pub password: String,
    pub virtual_host: String,
    pub tls: bool,
    /// CA certificates in PEM format, in place of the system's trust store.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key in PEM format, for a server that requires mutual TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether the client certificate authenticates (EXTERNAL). User and password are then ignored.
    pub external: bool,
    /// Prefix of every name on the server.
    pub prefix: String,
    /// Whether the first use creates a missing topic.
    pub create: bool,
    /// Number of queues of a group, and so of members that can work at once. Fixed when the group is created.
    pub partitions: u32,
    /// Whether each message of a key waits for its predecessor's confirm. Queues with `overflow=reject-publish` need
    /// this.
    /// Otherwise it starts after the first rejected message.
    pub one_per_key: bool,
    /// Limit of unacknowledged deliveries per member.
    pub in_flight: u32,
    /// How long a publisher waits for confirms.
    pub timeout: Duration,
    /// Timeout of connecting to one host.
    pub connect_timeout: Duration,
    /// Heartbeat interval. A connection without traffic for twice this time counts as lost.
    pub heartbeat: Duration,
    /// Payload size limit. Larger messages are refused before they are sent.
    pub payload_bytes: usize,
    /// Number of replicas that a queue should have. The doctor reports queues with fewer.
    pub replicas: usize,
    /// Value of the header `ce_source`.
    pub source: String,
    pub management: Option<Management>,
}

/// The management plugin's HTTP interface, which lists topics and serves the doctor.
#[derive(Clone, PartialEq, Eq)]
pub struct Management {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    pub user: String,
    pub password: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: vec![("127.0.0.1".into(), 5672)],
            user: "guest".into(),
            password: "guest".into(),
            virtual_host: "/".into(),
            tls: false,
            ca: None,
            certificate: None,
            external: false,
            prefix: String::new(),
            create: true,
            partitions: 4,
            one_per_key: false,
            in_flight: 1000,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            heartbeat: Duration::from_secs(10),
            // The default limit of RabbitMQ 4.
            payload_bytes: 16 * 1024 * 1024,
            replicas: 3,
            source: "landfall".into(),
            management: None,
        }
    }
}

impl Options {
    /// Parses `amqp://user:password@host:5672,host/virtual-host?prefix=shop.`, or `amqps:` for TLS.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        let tls = match url.scheme.as_str() {
            "amqp" => false,
            "amqps" => true,
            other => return Err(Error::invalid(format!("{other}: is not a RabbitMQ scheme; use amqp: or amqps:"))),
        };
        let mut options = Self { tls, ..Self::default() };
        let port = if tls { 5671 } else { 5672 };
        options.hosts = url.hosts.iter().map(|(host, given)| (host.clone(), given.unwrap_or(port))).collect();
        options.certificate = match (url.take("certificate"), url.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(Error::invalid("certificate and key must be set together")),
        };
        match url.user.clone() {
            Some(user) => {
                options.user = user;
                options.password = url.password.clone().unwrap_or_default();
            }
            None => options.external = options.certificate.is_some(),
        }
        if !url.path.is_empty() {
            options.virtual_host = url.path.clone();
        }
        set(&mut options.prefix, url.take("prefix"));
        set(&mut options.source, url.take("source"));
        options.ca = url.take("ca").map(PathBuf::from);
        set(&mut options.create, url.take_parsed("create", "true or false")?);
        set(&mut options.partitions, url.take_parsed("partitions", "a number")?);
        set(&mut options.one_per_key, url.take_parsed("one_per_key", "true or false")?);
        set(&mut options.in_flight, url.take_parsed("in_flight", "a number")?);
        set(&mut options.replicas, url.take_parsed("replicas", "a number")?);
        set(&mut options.timeout, seconds(&mut url, "timeout")?);
        set(&mut options.connect_timeout, seconds(&mut url, "connect_timeout")?);
        set(&mut options.heartbeat, seconds(&mut url, "heartbeat")?);
        set(&mut options.payload_bytes, url.take_parsed("payload_bytes", "a number of bytes")?);
        if let Some(management) = url.take("management") {
            options.management = Some(Management::from_url(&management, &options)?);
        }
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<()> {
        if !(1..=SLOTS).contains(&self.partitions) {
            return Err(Error::invalid(format!("partitions must be 1 to {SLOTS}")));
        }
        if self.in_flight == 0 || self.in_flight > 60_000 {
            return Err(Error::invalid("in_flight must be 1 to 60000"));
        }
        if self.prefix.len() > 100 || self.prefix.contains(crate::names::SEPARATOR) {
            return Err(Error::invalid("prefix must be at most 100 bytes long and contain no colon"));
        }
        // A URL with these options but without TLS would look secure without being so.
        let is_secure = self.tls || self.management.as_ref().is_some_and(|management| management.tls);
        if !is_secure && (self.ca.is_some() || self.certificate.is_some()) {
            let text = "ca, certificate and key need amqps: or management=https:";
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}

impl Management {
    /// Parses `http://host:15672` or `https://host:15671`. Without an account in it, the broker's account is used.
    fn from_url(url: &str, options: &Options) -> Result<Self> {
        let url = BrokerUrl::parse(url)?;
        let (tls, default_port) = match url.scheme.as_str() {
            "http" => (false, 15672),
            "https" => (true, 15671),
            _ => return Err(Error::invalid("management must be an http: URL, such as http://127.0.0.1:15672")),
        };
        let (host, port) = url.hosts[0].clone();
        let (user, password) = match url.user.clone() {
            Some(user) => (user, url.password.clone().unwrap_or_default()),
            None => (options.user.clone(), options.password.clone()),
        };
        url.finish()?;
        Ok(Self { host, port: port.unwrap_or(default_port), tls, user, password })
    }
}

fn set<T>(option: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *option = given;
    }
}

fn seconds(url: &mut BrokerUrl, name: &'static str) -> Result<Option<Duration>> {
    let given: Option<f64> = url.take_parsed(name, "a number of seconds")?;
    let invalid = || Error::invalid(format!("{name} must be more than 0 and at most 86400 seconds"));
    match given {
        Some(given) if given > 0.0 && given <= 86_400.0 => Ok(Some(Duration::from_secs_f64(given))),
        Some(_) => Err(invalid()),
        None => Ok(None),
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("virtual_host", &self.virtual_host)
            .field("tls", &self.tls)
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .field("prefix", &self.prefix)
            .field("create", &self.create)
            .field("partitions", &self.partitions)
            .field("in_flight", &self.in_flight)
            .field("management", &self.management)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_sets_every_option() {
        let url = "amqps://shop:s%40cret@a,b:5673/orders?prefix=shop.&partitions=8&in_flight=10&timeout=2.5\
                   &create=false&management=http%3A%2F%2Fadmin%3Ahidden%40m";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.hosts, [("a".to_owned(), 5671), ("b".to_owned(), 5673)]);
        assert_eq!((options.user.as_str(), options.password.as_str()), ("shop", "s@cret"));
        assert_eq!((options.virtual_host.as_str(), options.prefix.as_str()), ("orders", "shop."));
        assert_eq!((options.partitions, options.in_flight, options.create), (8, 10, false));
        assert_eq!(options.timeout, Duration::from_millis(2500));
        let management = options.management.as_ref().unwrap();
        assert_eq!((management.port, management.user.as_str()), (15672, "admin"));
        let debug = format!("{options:?}");
        assert!(!debug.contains("s@cret") && !debug.contains("hidden"), "{debug}");
    }

    #[test]
    fn client_certificate_is_the_account_without_a_user() {
        let url = "amqps://a?ca=ca.pem&certificate=own.pem&key=own.key&management=https%3A%2F%2Fu%3Ap%40m";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.certificate, Some(("own.pem".into(), "own.key".into())));
        assert!(options.external);
        let management = options.management.as_ref().unwrap();
        assert_eq!((management.tls, management.port), (true, 15671));
        assert!(!Options::from_url("amqps://u:p@a?certificate=own.pem&key=own.key").unwrap().external);
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        for (url, reason) in [
            ("redis://a", "redis: is not a RabbitMQ scheme; use amqp: or amqps:"),
            ("amqp://a?partitions=33", "partitions must be 1 to 32"),
            ("amqp://a?in_flight=0", "in_flight must be 1 to 60000"),
            ("amqp://a?timeout=0", "timeout must be more than 0 and at most 86400 seconds"),
            ("amqp://a?prefix=a%3Ab", "prefix must be at most 100 bytes long and contain no colon"),
            ("amqps://a?certificate=x", "certificate and key must be set together"),
            ("amqp://a?ca=x", "ca, certificate and key need amqps: or management=https:"),
            ("amqp://a?management=ftp%3A%2F%2Fx", "management must be an http: URL, such as http://127.0.0.1:15672"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), reason);
        }
    }
}
