//! What the adapter is told, most of it by URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use landfall_core::{BrokerUrl, Error, Result, Span};

/// The most that SQS takes, since August 2025: 1 MiB, for a message with its attributes and for a call.
const MOST_BYTES: usize = 1024 * 1024;
/// The longest that SQS keeps a message from others, and the longest that it waits for one.
const MOST_VISIBILITY: Duration = Duration::from_secs(12 * 3600);
const MOST_WAIT: Duration = Duration::from_secs(20);
/// What must be left of the 80 letters of a queue's name.
const PREFIX_LETTERS: usize = 40;

/// How queues are reached and worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the queues are; `None` for what the environment or the profile says.
    pub region: Option<String>,
    /// The account that owns the queues, where it is not the caller's own.
    pub account: Option<String>,
    /// Where the service answers, if it is not AWS's own address of the region.
    pub endpoint: Option<String>,
    /// `None` for what AWS's own tools would use: environment, profile, web identity, container, instance.
    pub access_key: Option<AccessKey>,
    /// The profile to read in place of the default one.
    pub profile: Option<String>,
    /// The only certificate authority to trust, as a PEM file, for an endpoint of one's own.
    pub ca: Option<PathBuf>,
    /// What the name of every queue begins with.
    pub prefix: String,
    /// FIFO queues; standard ones know neither order nor copies.
    pub fifo: bool,
    /// Whether a queue that is not there is made, with safe settings.
    pub create: bool,
    /// The largest message with its attributes, and the largest call.
    pub message_bytes: usize,
    /// Calls that publish at once.
    pub connections: usize,
    /// Calls that receive at once, for each subscriber and while there is much to receive.
    pub pollers: usize,
    /// Messages that a subscriber has and has not finished.
    pub in_flight: usize,
    /// How long a message is kept from other members after its holder was heard of last.
    pub visibility: Duration,
    /// How long an empty queue is listened to with one call.
    pub wait: Duration,
    /// How long a call may take, beside the waiting for messages.
    pub timeout: Duration,
    pub connect_timeout: Duration,
}

/// An access key of AWS. The secret parts are never shown.
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
            message_bytes: MOST_BYTES,
            connections: 16,
            pollers: 4,
            in_flight: 1_000,
            visibility: Duration::from_secs(30),
            wait: MOST_WAIT,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
        }
    }
}

impl Options {
    /// `sqs://[KEY:SECRET@]REGION[/ACCOUNT][?parameters]`, where the region `default` is the one of the environment.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut url = BrokerUrl::parse(url)?;
        if url.scheme != "sqs" {
            return Err(Error::invalid(format!("{}: is no URL of SQS; it begins with sqs:", url.scheme)));
        }
        let region = match &url.hosts[..] {
            [(region, None)] => Some(region.clone()).filter(|region| region != "default"),
            _ => return Err(Error::invalid("an SQS URL names one region, without a port, where others name hosts")),
        };
        let account = Some(url.path.trim_end_matches('/').to_owned()).filter(|account| !account.is_empty());
        if account.as_ref().is_some_and(|account| !account.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(Error::invalid("the path of an SQS URL is the number of an AWS account"));
        }
        let session_token = url.take("session_token");
        let access_key = match (url.user.take(), url.password.take()) {
            (Some(id), Some(secret)) => Some(AccessKey { id, secret, session_token }),
            (None, None) if session_token.is_none() => None,
            _ => return Err(Error::invalid("an SQS URL with a key names both: KEY:SECRET@")),
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

    /// Refuses what SQS would refuse, or what could not work.
    pub(crate) fn check(&self) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let seconds = Duration::from_secs;
        for (holds, sentence) in [
            (
                self.prefix.len() <= PREFIX_LETTERS && self.prefix.chars().all(plain),
                "prefix must be at most 40 letters, digits, '-' and '_', which is what SQS takes in a name",
            ),
            ((1024..=MOST_BYTES).contains(&self.message_bytes), "message_bytes must be between 1024 and 1048576"),
            (self.connections > 0 && self.pollers > 0, "connections and pollers must be at least 1"),
            (self.in_flight >= 10, "in_flight must be at least 10, which is what one call may bring"),
            ((seconds(2)..=MOST_VISIBILITY).contains(&self.visibility), "visibility must be between 2s and 12h"),
            (self.wait <= MOST_WAIT, "wait must be at most 20s"),
            (
                self.ca.is_none() || self.endpoint.as_ref().is_none_or(|endpoint| !endpoint.starts_with("http:")),
                "ca means something only where the endpoint is an https: URL",
            ),
            (!self.timeout.is_zero() && !self.connect_timeout.is_zero(), "a timeout of 0 leaves no time for anything"),
        ] {
            if !holds {
                return Err(Error::invalid(sentence));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_url_is_found() {
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
    fn what_cannot_work_is_refused_with_a_sentence() {
        for (url, part) in [
            ("kafka://eu-central-1", "is no URL of SQS"),
            ("sqs://a,b", "names one region"),
            ("sqs://localhost:9324", "names one region"),
            ("sqs://eu-central-1/queue", "the number of an AWS account"),
            ("sqs://AKIA1@eu-central-1", "names both"),
            ("sqs://eu-central-1?prefix=shop.", "prefix must be"),
            ("sqs://eu-central-1?visibility=1s", "visibility must be"),
            ("sqs://eu-central-1?wait=1m", "wait must be"),
            ("sqs://eu-central-1?ca=x&endpoint=http://a", "only where the endpoint is an https: URL"),
            ("sqs://eu-central-1?visibilty=1m", "no parameter \"visibilty\""),
        ] {
            let error = Options::from_url(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
