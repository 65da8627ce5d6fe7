//! The configuration: built-in defaults ← file ← environment ← flags.
//!
//! * [`key`] is the table of all keys: path, type, range and field. An unknown key in a file is an error that names
//!   the nearest one; an unknown variable is a warning.
//! * [`layer`] turns a file, the environment and flags into settings that record their origin.
//! * `config/default.toml` explains every key; a test asserts that it equals [`Config::default`].

mod alert;
mod broker;
mod check_back;
mod fields;
mod idempotent_route;
mod import;
mod key;
mod layer;
mod push;
mod redrive;
mod retention;
mod secret;
mod token;
mod value;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use landfall::housekeeping::Span;
use landfall::import::Mapping;
use landfall::{Limits, TablePrefix};

use crate::error::{Error, Result};

pub(crate) use alert::{Alerts, Channel, ChannelKind};
pub(crate) use broker::{Acknowledge, Broker, Flush};
#[cfg(feature = "dns")]
pub(crate) use check_back::Srv;
pub(crate) use check_back::{CheckBack, Shard};
pub(crate) use idempotent_route::{IdempotentRoute, RouteScope};
pub(crate) use layer::{Environment, Flag};
pub(crate) use push::{Push, Subscription, receiver_url};
pub(crate) use redrive::Redrive;
pub(crate) use retention::{Retention, window};
pub(crate) use secret::{Address, Secret};
pub(crate) use token::{Role, Token};

/// The file that is read if neither `--config` nor `LANDFALL_CONFIG` names one.
const FILE: &str = "landfall.toml";

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Config {
    /// Existing outbox tables whose rows are moved into Landfall's outbox.
    pub(crate) import: Vec<Mapping>,
    /// Topics whose messages are posted to a URL.
    pub(crate) subscription: Vec<Subscription>,
    /// Requests that are forwarded to services once per `Idempotency-Key`.
    pub(crate) idempotent_route: Vec<IdempotentRoute>,
    pub(crate) database: Database,
    pub(crate) broker: Broker,
    pub(crate) relay: Relay,
    pub(crate) push: Push,
    pub(crate) check_back: CheckBack,
    pub(crate) alerts: Alerts,
    pub(crate) redrive: Redrive,
    pub(crate) retention: Retention,
    pub(crate) limits: Limits,
    pub(crate) proxy: Proxy,
    pub(crate) http: Http,
    pub(crate) auth: Auth,
    pub(crate) log: Log,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Database {
    pub(crate) url: Address,
    pub(crate) prefix: TablePrefix,
    pub(crate) max_connections: u32,
    pub(crate) auto_migrate: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relay {
    pub(crate) batch: usize,
    pub(crate) lease: Duration,
    pub(crate) poll_max: Duration,
    pub(crate) backoff: landfall::Backoff,
    pub(crate) order: Order,
    pub(crate) when_exhausted: WhenExhausted,
}

/// The order the relay preserves: per topic and key, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Key,
    None,
}

/// What happens to a key after its message is parked: later messages wait, or are published without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenExhausted {
    Hold,
    Skip,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Http {
    pub(crate) listen: SocketAddr,
    pub(crate) request_timeout: Duration,
    pub(crate) stop_timeout: Duration,
    /// PEM files of the listener's certificate chain and key; both empty for plain HTTP.
    pub(crate) certificate_file: String,
    pub(crate) key_file: String,
}

/// Where clients of `[[idempotent_route]]` connect; bound only if there is one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Proxy {
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Auth {
    pub(crate) tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: Address::new("sqlite:landfall-data/landfall.db"),
            prefix: TablePrefix::default(),
            max_connections: 8,
            auto_migrate: true,
        }
    }
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            batch: 1000,
            lease: Duration::from_secs(10),
            poll_max: Duration::from_millis(100),
            backoff: landfall::Backoff {
                first: Duration::from_millis(200),
                cap: Duration::from_secs(30),
                max_attempts: 10,
            },
            order: Order::Key,
            when_exhausted: WhenExhausted::Hold,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            request_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            certificate_file: String::new(),
            key_file: String::new(),
        }
    }
}

impl Default for Proxy {
    fn default() -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7701)) }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

impl Config {
    /// Loads all layers: `file`, then the environment, then `flags`. A file that is named must exist.
    pub(crate) fn load(file: Option<PathBuf>, environment: &Environment, flags: &[Flag]) -> Result<Self> {
        let mut config = Self::default();
        for setting in file_settings(file, environment)? {
            setting.apply(&mut config, environment)?;
        }
        for setting in environment.settings() {
            setting.apply(&mut config, environment)?;
        }
        for flag in flags {
            flag.setting().apply(&mut config, environment)?;
        }
        config.check()?;
        Ok(config)
    }

    /// Checks that involve more than one key.
    fn check(&self) -> Result<()> {
        for (section, backoff) in [("relay", &self.relay.backoff), ("check_back", &self.check_back.backoff)] {
            if backoff.first > backoff.cap {
                return Err(Error::usage(format!(
                    "{section}.backoff_first_ms ({}) is greater than {section}.backoff_cap_ms ({}); lower the first \
                     or raise the cap",
                    backoff.first.as_millis(),
                    backoff.cap.as_millis()
                )));
            }
        }
        let least = Span::days(1);
        if self.retention.alerts < least {
            let given = self.retention.alerts;
            return Err(Error::usage(format!(
                "retention.alerts ({given}) is shorter than {least}; known errors would count as new again"
            )));
        }
        self.alerts.check()
    }
}

fn file_settings(file: Option<PathBuf>, environment: &Environment) -> Result<Vec<layer::Setting>> {
    let named = file.or_else(|| environment.get(layer::FILE_VARIABLE).map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| PathBuf::from(FILE));
    match std::fs::read_to_string(&path) {
        Ok(text) => layer::from_toml(&path.display().to_string(), &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => Ok(Vec::new()),
        Err(error) => Err(Error::usage(format!("cannot read the configuration {}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::TopicSettings;

    const DEFAULT_FILE: &str = include_str!("../../config/default.toml");

    fn load(text: &str, variables: &[(&str, &str)], flags: &[Flag]) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        let environment = Environment::new(variables.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        Config::load(Some(path), &environment, flags)
    }

    /// Returns the error for `text`, without the folder of the file.
    fn error_for(text: &str) -> String {
        let expected = load(text, &[], &[]).unwrap_err().to_string();
        expected[expected.find(FILE).unwrap_or(0)..].to_owned()
    }

    #[test]
    fn annotated_file_equals_the_defaults() {
        let environment = Environment::new([]);
        let mut config = Config::default();
        // Changed first, so that a key missing from the file shows as a difference.
        config.database.max_connections = 1;
        config.relay.batch = 1;
        config.log.format = LogFormat::Json;
        let settings = layer::from_toml("default.toml", DEFAULT_FILE).unwrap();
        let paths: Vec<&str> = settings.iter().map(|setting| setting.path.as_str()).collect();
        assert_eq!(paths, key::paths().collect::<Vec<_>>(), "every key, in the order of the table");
        for setting in settings {
            setting.apply(&mut config, &environment).unwrap();
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn reference_documents_every_key() {
        let reference = include_str!("../../../../docs/reference/configuration.md");
        for path in key::paths() {
            assert!(reference.contains(&format!("`{path}`")), "configuration.md does not name {path}");
        }
    }

    #[test]
    fn later_layers_win() {
        let file = "[database]\nurl = \"sqlite:file.db\"\n[relay]\nbatch = 7\n[limits]\npayload_bytes = 5\n";
        let variables = [("LANDFALL_DATABASE_URL", "sqlite:env.db"), ("LANDFALL_RELAY_BATCH", "8"), ("HOME", "/")];
        let config = load(file, &variables, &[Flag::new("--database-url", "database.url", "sqlite:flag.db")]).unwrap();
        assert_eq!(config.database.url.expose(), "sqlite:flag.db");
        assert_eq!((config.relay.batch, config.limits.payload_bytes), (8, 5));
    }

    #[test]
    fn broker_keys_accept_units() {
        let file = "[broker]\nacknowledge = \"written\"\nflush = \"500 messages\"\nretention = \"7d\"\n\
                    retention_bytes = \"10GiB\"\nmay_drop_unread = true\ndeduplicate = false\n";
        let broker = load(file, &[("LANDFALL_BROKER_FLUSH", "20ms")], &[]).unwrap().broker;
        assert_eq!(broker.acknowledge, Acknowledge::Leader);
        assert_eq!(broker.flush, Flush::Interval(Duration::from_millis(20)));
        let topic = TopicSettings {
            retention_time: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: Some(10 << 30),
            may_drop_unread: true,
            compact: false,
            deduplicate: false,
        };
        assert_eq!(broker.topic, topic);
        assert!(load("[broker]\nretention_bytes = 4096", &[], &[]).unwrap().broker.topic.retention_bytes == Some(4096));
    }

    #[test]
    fn unknown_key_error_suggests_the_nearest() {
        for (text, expected) in [
            (
                "\n[databse]\nurl = \"x\"\n",
                r#"landfall.toml, line 3: unknown key "databse.url"; did you mean "database.url"?"#,
            ),
            ("[relay]\nbach = 1\n", r#"landfall.toml, line 2: unknown key "relay.bach"; did you mean "relay.batch"?"#),
            ("listen = \"127.0.0.1:1\"", r#"landfall.toml, line 1: unknown key "listen"; did you mean "http.listen"?"#),
            (
                "zzz = 1",
                "landfall.toml, line 1: unknown key \"zzz\"; the sections are database, broker, relay, push, \
                 check_back, alerts, redrive, retention, limits, proxy, http, auth, log",
            ),
            ("relay = 1", "landfall.toml, line 1: relay is a section; write [relay] and its keys below"),
        ] {
            assert_eq!(error_for(text), expected);
        }
        let environment = Environment::new([("LANDFALL_DATABASE_ULR".to_owned(), "x".to_owned())]);
        let warning = "the environment variable LANDFALL_DATABASE_ULR matches no configuration key and is ignored; \
                       did you mean LANDFALL_DATABASE_URL?";
        assert_eq!(environment.warnings(), [warning]);
    }

    #[test]
    fn invalid_value_error_names_the_key() {
        for (text, expected) in [
            (
                "[relay]\nbatch = \"many\"",
                "landfall.toml, line 2: relay.batch must be a whole number from 1 to 10000, not \"many\"",
            ),
            ("[relay]\nbatch = 0", "landfall.toml, line 2: relay.batch must be a whole number from 1 to 10000, not 0"),
            (
                "[database]\n\nauto_migrate = \"yes\"",
                "landfall.toml, line 3: database.auto_migrate must be true or false, not \"yes\"",
            ),
            ("[database]\nurl = 5", "landfall.toml, line 2: database.url must be a string, not an integer"),
            (
                "[http]\nlisten = \"7700\"",
                "landfall.toml, line 2: http.listen must be an address and a port such as 127.0.0.1:7700, not \
                 \"7700\"",
            ),
            (
                "[broker]\nretention = \"7\"",
                r#"landfall.toml, line 2: broker.retention must be a time such as 7d, 36h or 90s, or forever, not "7""#,
            ),
            (
                "[broker]\nflush = \"sometimes\"",
                "landfall.toml, line 2: broker.flush must be batch, a count such as 500 messages, or a time such as \
                 20ms, not \"sometimes\"",
            ),
            (
                "[broker]\nacknowledge = \"most\"",
                "landfall.toml, line 2: broker.acknowledge must be none or leader or all or written or synced, not \
                 \"most\"",
            ),
            ("[log]\nformat = \"xml\"", r#"landfall.toml, line 2: log.format must be text or json, not "xml""#),
        ] {
            assert_eq!(error_for(text), expected);
        }
        assert!(error_for("[relay\nbatch = 1").starts_with("landfall.toml, line 1: "));
        assert!(error_for("[database]\nprefix = \"a b\"").starts_with("landfall.toml, line 2: database.prefix: "));
        assert!(
            error_for("[relay]\nbackoff_first_ms = 60000").contains("is greater than relay.backoff_cap_ms (30000)")
        );
        let error = load("", &[("LANDFALL_RELAY_BATCH", "many")], &[]).unwrap_err().to_string();
        assert_eq!(error, r#"LANDFALL_RELAY_BATCH: relay.batch must be a whole number from 1 to 10000, not "many""#);
    }

    #[test]
    fn tokens_are_resolved_and_never_printed() {
        let file = "[auth]\ntokens = [{ role = \"operator\", token = \"env:SHOP_TOKEN\" }]";
        let config = load(file, &[("SHOP_TOKEN", "0123456789abcdef")], &[]).unwrap();
        assert_eq!(config.auth.tokens.len(), 1);
        assert_eq!(config.auth.tokens[0].role, Role::Operator);
        assert_eq!(config.auth.tokens[0].secret.expose(), "0123456789abcdef");
        assert!(!format!("{config:?}").contains("0123456789abcdef"));

        assert!(error_for(file).ends_with(
            r#"line 2: auth.tokens[0].token points at the environment variable "SHOP_TOKEN", which is not set"#
        ));
        for (tokens, expected) in [
            ("[{ role = \"boss\", token = \"0123456789abcdef\" }]", "auth.tokens[0].role must be one of"),
            ("[{ rol = \"admin\" }]", r#"auth.tokens[0] has the unknown key "rol"; did you mean "role"?"#),
            ("[{ role = \"admin\" }]", "auth.tokens[0] needs a token"),
            ("[{ role = \"admin\", token = \"short\" }]", "auth.tokens[0].token must have at least 16 characters"),
            ("[\"0123456789abcdef\"]", "auth.tokens[0] must be a table with role and token"),
        ] {
            let error = error_for(&format!("[auth]\ntokens = {tokens}"));
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("0123456789abcdef"), "{error}");
        }
    }

    #[test]
    fn named_configuration_file_must_exist() {
        let error = Config::load(Some("/nowhere/landfall.toml".into()), &Environment::new([]), &[]).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the configuration /nowhere/landfall.toml: "));
    }
}
