//! Where the broker is and how it is worked with, from its URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use landfall_core::{BrokerUrl, Error, Result};

use crate::names::SLOTS;

/// What the adapter needs to know. Passwords are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Tried in this order.
    pub hosts: Vec<(String, u16)>,
    pub user: String,
    pub password: String,
    pub virtual_host: String,
    pub tls: bool,
    /// Certificates to trust in place of the system's, in PEM format.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and its key, in PEM format, for a server that asks for them.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether that certificate is the account (EXTERNAL), and user and password count for nothing.
    pub external: bool,
    /// What every name on the server begins with.
    pub prefix: String,
    /// Whether topics are made on first use.
    pub create: bool,
    /// Queues of a group, and so how many of its members can work at once. Fixed when the group is made.
    pub partitions: u32,
    /// Whether a key's next message waits for the confirm of the one before, as queues that turn messages down when they
    /// are full need it. Otherwise that begins when one has.
    pub one_per_key: bool,
    /// Deliveries that a member has at most and did not acknowledge yet.
    pub in_flight: u32,
    /// For how long a publisher waits for its confirms.
    pub timeout: Duration,
    /// For how long a connection may take to come about.
    pub connect_timeout: Duration,
    /// After twice this time of silence a connection counts as lost.
    pub heartbeat: Duration,
    /// What is larger is refused before it is sent.
    pub payload_bytes: usize,
    /// Members that a queue should have; fewer are a finding of the doctor's.
    pub replicas: usize,
    /// `ce_source` of what is published.
    pub source: String,
    pub management: Option<Management>,
}

/// The management plugin's HTTP interface: what lists topics and what the doctor asks.
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
            // What RabbitMQ 4 takes without being told to take more.
            payload_bytes: 16 * 1024 * 1024,
            replicas: 3,
            source: "landfall".into(),
            management: None,
        }
    }
}

impl Options {
    /// `amqp://user:password@host:5672,host/virtual-host?prefix=shop.`, or `amqps:` for TLS.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        let tls = match url.scheme.as_str() {
            "amqp" => false,
            "amqps" => true,
            other => return Err(Error::invalid(format!("{other}: is not RabbitMQ; its URLs begin with amqp:"))),
        };
        let mut options = Self { tls, ..Self::default() };
        let port = if tls { 5671 } else { 5672 };
        options.hosts = url.hosts.iter().map(|(host, given)| (host.clone(), given.unwrap_or(port))).collect();
        options.certificate = match (url.take("certificate"), url.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err(Error::invalid("the broker URL must give certificate and key together")),
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
            return Err(Error::invalid("the prefix is at most 100 bytes long and has no colon"));
        }
        // Whoever names them believes that the way is safe.
        let is_secure = self.tls || self.management.as_ref().is_some_and(|management| management.tls);
        if !is_secure && (self.ca.is_some() || self.certificate.is_some()) {
            let text = "ca, certificate and key mean something only with amqps: or management=https:";
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}

impl Management {
    /// `http://host:15672` or `https://host:15671`, with an account of its own or the broker's.
    fn from_url(url: &str, options: &Options) -> Result<Self> {
        let url = BrokerUrl::parse(url)?;
        let (tls, usual) = match url.scheme.as_str() {
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
        Ok(Self { host, port: port.unwrap_or(usual), tls, user, password })
    }
}

fn set<T>(to: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *to = given;
    }
}

fn seconds(url: &mut BrokerUrl, name: &'static str) -> Result<Option<Duration>> {
    let given: Option<f64> = url.take_parsed(name, "a number of seconds")?;
    let wrong = || Error::invalid(format!("{name} must be more than 0 and at most 86400 seconds"));
    match given {
        Some(given) if given > 0.0 && given <= 86_400.0 => Ok(Some(Duration::from_secs_f64(given))),
        Some(_) => Err(wrong()),
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
    fn everything_stands_in_the_url() {
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
        let shown = format!("{options:?}");
        assert!(!shown.contains("s@cret") && !shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn a_certificate_is_the_account_where_no_other_is_named() {
        let url = "amqps://a?ca=ca.pem&certificate=own.pem&key=own.key&management=https%3A%2F%2Fu%3Ap%40m";
        let options = Options::from_url(url).unwrap();
        assert_eq!(options.certificate, Some(("own.pem".into(), "own.key".into())));
        assert!(options.external);
        let management = options.management.as_ref().unwrap();
        assert_eq!((management.tls, management.port), (true, 15671));
        assert!(!Options::from_url("amqps://u:p@a?certificate=own.pem&key=own.key").unwrap().external);
    }

    #[test]
    fn what_cannot_be_is_a_sentence() {
        for (url, sentence) in [
            ("redis://a", "redis: is not RabbitMQ; its URLs begin with amqp:"),
            ("amqp://a?partitions=33", "partitions must be 1 to 32"),
            ("amqp://a?in_flight=0", "in_flight must be 1 to 60000"),
            ("amqp://a?timeout=0", "timeout must be more than 0 and at most 86400 seconds"),
            ("amqp://a?prefix=a%3Ab", "the prefix is at most 100 bytes long and has no colon"),
            ("amqps://a?certificate=x", "the broker URL must give certificate and key together"),
            ("amqp://a?ca=x", "ca, certificate and key mean something only with amqps: or management=https:"),
            ("amqp://a?management=ftp%3A%2F%2Fx", "management must be an http: URL, such as http://127.0.0.1:15672"),
        ] {
            assert_eq!(Options::from_url(url).unwrap_err().to_string(), sentence);
        }
    }
}
