//! The configuration: built-in defaults ← file ← environment ← flags.
//!
//! * [`key`] is the table of every key: its path, its type and range, and the field it sets. What is not in it is an
//!   error, with the nearest key named.
//! * [`layer`] turns a file, the environment and flags into settings that remember where they came from.
//! * `config/default.toml` explains every key; a test holds it equal to [`Config::default`].

mod import;
mod key;
mod layer;
mod push;
mod retention;
mod secret;
mod token;
mod value;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use landfall::import::Mapping;
use landfall::log::{Acknowledge, Flush, TopicSettings};
use landfall::{Limits, TablePrefix};

use crate::error::{Error, Result};

pub(crate) use layer::{Environment, Flag};
pub(crate) use push::{Push, Subscription};
pub(crate) use retention::{Retention, window};
pub(crate) use secret::{Address, Secret};
pub(crate) use token::{Role, Token};

/// What `landfall.toml` is called where nobody said otherwise.
const FILE: &str = "landfall.toml";

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Config {
    /// Outboxes that are already there, whose rows are moved into Landfall's own.
    pub(crate) import: Vec<Mapping>,
    /// What is posted where.
    pub(crate) subscription: Vec<Subscription>,
    pub(crate) database: Database,
    pub(crate) broker: Broker,
    pub(crate) relay: Relay,
    pub(crate) push: Push,
    pub(crate) retention: Retention,
    pub(crate) limits: Limits,
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
pub(crate) struct Broker {
    pub(crate) url: Address,
    pub(crate) partitions: u32,
    pub(crate) acknowledge: Acknowledge,
    pub(crate) flush: Flush,
    /// Of topics that come into being with their first message, and what `topic create` begins with.
    pub(crate) topic: TopicSettings,
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

/// What the relay keeps in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Key,
    None,
}

/// What becomes of a key whose message failed for the last time.
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

impl Default for Broker {
    fn default() -> Self {
        Self {
            url: Address::new("log:landfall-data/log"),
            partitions: 4,
            acknowledge: Acknowledge::default(),
            flush: Flush::default(),
            topic: TopicSettings::default(),
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
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

impl Config {
    /// Reads every layer: `file` (which must exist if it is named), then the environment, then `flags`.
    pub(crate) fn load(file: Option<PathBuf>, environment: &Environment, flags: &[Flag]) -> Result<Self> {
        let mut config = Self::default();
        for setting in file_settings(file, environment)? {
            setting.apply(&mut config, environment)?;
        }
        for setting in environment.settings()? {
            setting.apply(&mut config, environment)?;
        }
        for flag in flags {
            flag.setting().apply(&mut config, environment)?;
        }
        config.check()?;
        Ok(config)
    }

    /// What no key can check alone.
    fn check(&self) -> Result<()> {
        let backoff = &self.relay.backoff;
        if backoff.first > backoff.cap {
            return Err(Error::wrong_use(format!(
                "relay.backoff_first_ms is {} and relay.backoff_cap_ms is {}; the first wait cannot be longer than the \
                 longest",
                backoff.first.as_millis(),
                backoff.cap.as_millis()
            )));
        }
        Ok(())
    }
}

fn file_settings(file: Option<PathBuf>, environment: &Environment) -> Result<Vec<layer::Setting>> {
    let named = file.or_else(|| environment.get(layer::FILE_VARIABLE).map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| PathBuf::from(FILE));
    match std::fs::read_to_string(&path) {
        Ok(text) => layer::from_toml(&path.display().to_string(), &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => Ok(Vec::new()),
        Err(error) => Err(Error::wrong_use(format!("the configuration {} cannot be read: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT_FILE: &str = include_str!("../../config/default.toml");

    fn load(text: &str, variables: &[(&str, &str)], flags: &[Flag]) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        let environment = Environment::new(variables.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        Config::load(Some(path), &environment, flags)
    }

    /// The sentence for `text`, without the folder of the file.
    fn refusal(text: &str) -> String {
        let sentence = load(text, &[], &[]).unwrap_err().to_string();
        sentence[sentence.find(FILE).unwrap_or(0)..].to_owned()
    }

    #[test]
    fn the_annotated_file_is_the_default() {
        let environment = Environment::new([]);
        let mut config = Config::default();
        // Values that differ from the default wherever the file would not set them.
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
    fn the_reference_explains_every_key_and_its_variable() {
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
    fn what_the_log_does_is_written_in_peoples_units() {
        let file = "[broker]\nacknowledge = \"written\"\nflush = \"500 messages\"\nretention = \"7d\"\n\
                    retention_bytes = \"10GiB\"\nmay_drop_unread = true\ndeduplicate = false\n";
        let broker = load(file, &[("LANDFALL_BROKER_FLUSH", "20ms")], &[]).unwrap().broker;
        assert_eq!(broker.acknowledge, Acknowledge::Written);
        assert_eq!(broker.flush, Flush::Every(Duration::from_millis(20)));
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
    fn a_wrong_key_is_a_sentence_with_the_nearest_one() {
        for (text, sentence) in [
            (
                "\n[databse]\nurl = \"x\"\n",
                r#"landfall.toml, line 3: unknown key "databse.url"; did you mean "database.url"?"#,
            ),
            ("[relay]\nbach = 1\n", r#"landfall.toml, line 2: unknown key "relay.bach"; did you mean "relay.batch"?"#),
            ("listen = \"127.0.0.1:1\"", r#"landfall.toml, line 1: unknown key "listen"; did you mean "http.listen"?"#),
            (
                "zzz = 1",
                r#"landfall.toml, line 1: unknown key "zzz"; the sections are database, broker, relay, push, retention, limits, http, auth, log"#,
            ),
            ("relay = 1", "landfall.toml, line 1: relay is a section; write [relay] and its keys below"),
        ] {
            assert_eq!(refusal(text), sentence);
        }
        let error = load("", &[("LANDFALL_DATABASE_ULR", "x")], &[]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the environment variable LANDFALL_DATABASE_ULR names no key; did you mean LANDFALL_DATABASE_URL?"
        );
    }

    #[test]
    fn a_wrong_value_is_a_sentence_with_its_key() {
        for (text, sentence) in [
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
                r#"landfall.toml, line 2: http.listen must be an address and a port such as 127.0.0.1:7700, not "7700""#,
            ),
            (
                "[broker]\nretention = \"7\"",
                r#"landfall.toml, line 2: broker.retention must be a time such as 7d, 36h or 90s, or forever, not "7""#,
            ),
            (
                "[broker]\nflush = \"sometimes\"",
                r#"landfall.toml, line 2: broker.flush must be batch, or such as 500 messages, or such as 20ms, not "sometimes""#,
            ),
            (
                "[broker]\nacknowledge = \"all\"",
                r#"landfall.toml, line 2: broker.acknowledge must be none or written or synced, not "all""#,
            ),
            ("[log]\nformat = \"xml\"", r#"landfall.toml, line 2: log.format must be text or json, not "xml""#),
        ] {
            assert_eq!(refusal(text), sentence);
        }
        assert!(refusal("[relay\nbatch = 1").starts_with("landfall.toml, line 1: "));
        assert!(refusal("[database]\nprefix = \"a b\"").starts_with("landfall.toml, line 2: database.prefix: "));
        assert!(refusal("[relay]\nbackoff_first_ms = 60000").contains("cannot be longer than the longest"));
        let error = load("", &[("LANDFALL_RELAY_BATCH", "many")], &[]).unwrap_err().to_string();
        assert_eq!(error, r#"LANDFALL_RELAY_BATCH: relay.batch must be a whole number from 1 to 10000, not "many""#);
    }

    #[test]
    fn tokens_come_from_secrets_and_are_never_shown() {
        let file = "[auth]\ntokens = [{ role = \"operator\", token = \"env:SHOP_TOKEN\" }]";
        let config = load(file, &[("SHOP_TOKEN", "0123456789abcdef")], &[]).unwrap();
        assert_eq!(config.auth.tokens.len(), 1);
        assert_eq!(config.auth.tokens[0].role, Role::Operator);
        assert_eq!(config.auth.tokens[0].secret.expose(), "0123456789abcdef");
        assert!(!format!("{config:?}").contains("0123456789abcdef"));

        assert!(refusal(file).ends_with(
            r#"line 2: auth.tokens[0].token points at the environment variable "SHOP_TOKEN", which is not set"#
        ));
        for (tokens, sentence) in [
            ("[{ role = \"boss\", token = \"0123456789abcdef\" }]", "auth.tokens[0].role must be one of"),
            ("[{ rol = \"admin\" }]", r#"auth.tokens[0] has the unknown key "rol"; did you mean "role"?"#),
            ("[{ role = \"admin\" }]", "auth.tokens[0] needs a token"),
            ("[{ role = \"admin\", token = \"short\" }]", "auth.tokens[0].token must have at least 16 characters"),
            ("[\"0123456789abcdef\"]", "auth.tokens[0] must be a table with role and token"),
        ] {
            let refusal = refusal(&format!("[auth]\ntokens = {tokens}"));
            assert!(refusal.contains(sentence), "{refusal}");
            assert!(!refusal.contains("0123456789abcdef"), "{refusal}");
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        let error = Config::load(Some("/nowhere/landfall.toml".into()), &Environment::new([]), &[]).unwrap_err();
        assert!(error.to_string().starts_with("the configuration /nowhere/landfall.toml cannot be read: "));
    }
}
