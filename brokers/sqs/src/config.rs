//! The options of an `sqs:` URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use landfall_core::adapter::BrokerUrl;
use landfall_core::{Error, Result, Span};

/// SQS's limit since August 2025, for a message with its attributes and for a call: 1 MiB.
const MAX_BYTES: usize = 1024 * 1024;
/// SQS's limits of the visibility timeout and of long polling.
const MAX_VISIBILITY: Duration = Duration::from_secs(12 * 3600);
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Limit of the prefix: a queue's name has at most 80 characters.
const MAX_PREFIX_LENGTH: usize = 40;

/// The options of an `sqs:` URL.
///
/// ```
/// use landfall_sqs::Options;
///
/// let options = Options::from_url("sqs://eu-central-1?prefix=shop-")?;
/// assert_eq!((options.region.as_deref(), options.fifo), (Some("eu-central-1"), true));
/// # Ok::<(), landfall_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Region of the queues. `None` uses the environment or the profile.
    pub region: Option<String>,
    /// Account that owns the queues, if it is not the caller's.
    pub account: Option<String>,
    /// Endpoint of the service, if it is not AWS's endpoint of the region.
    pub endpoint: Option<String>,
    /// Credentials. `None` uses AWS's default chain: environment, profile, web identity, container, instance.
    pub access_key: Option<AccessKey>,
    /// Profile to use instead of the default one.
    pub profile: Option<String>,
    /// PEM file with the only CA to trust, for a private endpoint.
    pub ca: Option<PathBuf>,
    /// Prefix of every queue's name.
    pub prefix: String,
    /// Whether to use FIFO queues. Standard queues neither keep order nor deduplicate.
    pub fifo: bool,
    /// Whether to create a missing queue, with safe settings.
    pub create: bool,
    /// Size limit of a message with its attributes, and of a call.
    pub message_bytes: usize,
    /// Concurrent calls of a publisher.
    pub connections: usize,
    /// Concurrent receive calls of a subscriber, under load.
    pub pollers: usize,
    /// Limit of unacknowledged deliveries per subscriber.
    pub in_flight: usize,
    /// Visibility timeout: how long a message is hidden from other members after its holder's last extension.
    pub visibility: Duration,
    /// Long-polling time of one receive call.
    pub wait: Duration,
    /// Timeout of a call, in addition to the long-polling time.
    pub timeout: Duration,
    pub connect_timeout: Duration,
}

/// An AWS access key. `Debug` omits the secret parts.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    pub id: String,
    pub secret: String,
    pub session_token: Option<String>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            region: None,
            account: None,
            endpoint: None,
            access_key: None,
            profile: None,
            ca: None,
            prefix: String::new(),
            fifo: true,
            create: true,
            message_bytes: MAX_BYTES,
            connections: 16,
            pollers: 4,
            in_flight: 1_000,
            visibility: Duration::from_secs(30),
            wait: MAX_WAIT,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
        }
    }
}

impl Options {
    /// Parses `sqs://[KEY:SECRET@]REGION[/ACCOUNT][?parameters]`. The region `default` uses that of the environment.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        if url.scheme != "sqs" {
            return Err(Error::invalid(format!("{}: is not an SQS scheme; use sqs:", url.scheme)));
        }
        let region = match &url.hosts[..] {
            [(region, None)] => Some(region.clone()).filter(|region| region != "default"),
            _ => return Err(Error::invalid("an SQS URL has one region, without a port, in place of the host")),
        };
        let account = Some(url.path.trim_end_matches('/').to_owned()).filter(|account| !account.is_empty());
        if account.as_ref().is_some_and(|account| !account.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(Error::invalid("the path of an SQS URL must be the number of an AWS account"));
        }
        let session_token = url.take("session_token");
        let access_key = match (url.user.take(), url.password.take()) {
            (Some(id), Some(secret)) => Some(AccessKey { id, secret, session_token }),
            (None, None) if session_token.is_none() => None,
            _ => return Err(Error::invalid("an SQS URL needs both key and secret: KEY:SECRET@")),
        };
        let default = Self::default();
        let time = "a time such as 30s";
        let duration = |value: Option<Span>, default| value.and_then(Span::time).unwrap_or(default);
        let options = Self {
            region,
            account,
            access_key,
            endpoint: url.take("endpoint"),
            profile: url.take("profile"),
            ca: url.take("ca").map(PathBuf::from),
            prefix: url.take("prefix").unwrap_or_default(),
            fifo: url.take_parsed("fifo", "true or false")?.unwrap_or(default.fifo),
            create: url.take_parsed("create", "true or false")?.unwrap_or(default.create),
            message_bytes: url.take_parsed("message_bytes", "a number")?.unwrap_or(default.message_bytes),
            connections: url.take_parsed("connections", "a number")?.unwrap_or(default.connections),
            pollers: url.take_parsed("pollers", "a number")?.unwrap_or(default.pollers),
            in_flight: url.take_parsed("in_flight", "a number")?.unwrap_or(default.in_flight),
            visibility: duration(url.take_parsed("visibility", time)?, default.visibility),
            wait: duration(url.take_parsed("wait", time)?, default.wait),
            timeout: duration(url.take_parsed("timeout", time)?, default.timeout),
            connect_timeout: duration(url.take_parsed("connect_timeout", time)?, default.connect_timeout),
        };
        url.finish()?;
        options.check()?;
        Ok(options)
    }

    /// Refuses invalid options.
    pub(crate) fn check(&self) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let seconds = Duration::from_secs;
        for (holds, reason) in [
            (
                self.prefix.len() <= MAX_PREFIX_LENGTH && self.prefix.chars().all(plain),
                "prefix must be at most 40 letters, digits, '-' and '_'; SQS allows no others",
            ),
            ((1024..=MAX_BYTES).contains(&self.message_bytes), "message_bytes must be between 1024 and 1048576"),
            (self.connections > 0 && self.pollers > 0, "connections and pollers must be at least 1"),
            (self.in_flight >= 10, "in_flight must be at least 10, the number of messages of one receive call"),
            ((seconds(2)..=MAX_VISIBILITY).contains(&self.visibility), "visibility must be between 2s and 12h"),
            (self.wait <= MAX_WAIT, "wait must be at most 20s"),
            (
                self.ca.is_none() || self.endpoint.as_ref().is_none_or(|endpoint| !endpoint.starts_with("http:")),
                "ca needs an https: endpoint",
            ),
            (
                !self.timeout.is_zero() && !self.connect_timeout.is_zero(),
                "timeout and connect_timeout must be greater than 0",
            ),
        ] {
            if !holds {
                return Err(Error::invalid(reason));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_sets_every_option() {
        let url = "sqs://AKIA1:s%2Fe%2Bcret@eu-central-1/123456789012?prefix=shop-&endpoint=http://127.0.0.1:9324\
                   &fifo=false&create=false&message_bytes=262144&visibility=1m&wait=5s&in_flight=50&session_token=t";
        let options = Options::from_url(url).unwrap();
        let expected = Options {
            region: Some("eu-central-1".into()),
            account: Some("123456789012".into()),
            endpoint: Some("http://127.0.0.1:9324".into()),
            access_key: Some(AccessKey {
                id: "AKIA1".into(),
                secret: "s/e+cret".into(),
                session_token: Some("t".into()),
            }),
            prefix: "shop-".into(),
            fifo: false,
            create: false,
            message_bytes: 262_144,
            visibility: Duration::from_secs(60),
            wait: Duration::from_secs(5),
            in_flight: 50,
            ..Options::default()
        };
        assert_eq!(options, expected);
        assert!(!format!("{options:?}").contains("s/e+cret"), "{options:?}");
        assert_eq!(Options::from_url("sqs://default").unwrap(), Options::default());
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        for (url, part) in [
            ("kafka://eu-central-1", "is not an SQS scheme"),
            ("sqs://a,b", "has one region"),
            ("sqs://localhost:9324", "has one region"),
            ("sqs://eu-central-1/queue", "the number of an AWS account"),
            ("sqs://AKIA1@eu-central-1", "needs both key and secret"),
            ("sqs://eu-central-1?prefix=shop.", "prefix must be"),
            ("sqs://eu-central-1?visibility=1s", "visibility must be"),
            ("sqs://eu-central-1?wait=1m", "wait must be"),
            ("sqs://eu-central-1?ca=x&endpoint=http://a", "ca needs an https: endpoint"),
            ("sqs://eu-central-1?visibilty=1m", "no parameter \"visibilty\""),
        ] {
            let error = Options::from_url(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
