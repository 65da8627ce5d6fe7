//! `[check_back]`: how undecided half messages are resolved.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use landfall::check_back::Topics;
use landfall::{Backoff, TopicName};

use super::push::receiver_url;
use super::value::{Given, Problem, Value, type_of};
use super::{Address, secret};
use crate::push::{Rules, SigningKey};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheckBack {
    pub(crate) interval: Duration,
    /// The time before the first check-back, for senders that give none.
    pub(crate) immunity: Duration,
    pub(crate) timeout: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) concurrency: usize,
    pub(crate) rules: Rules,
    /// Each key signs every request; empty for unsigned requests.
    pub(crate) keys: Vec<SigningKey>,
    /// Business databases with a barrier table, by the name that half messages use.
    pub(crate) databases: BTreeMap<String, Address>,
    /// Base URLs of services, for `service:NAME/path`.
    pub(crate) services: BTreeMap<String, Vec<String>>,
    /// Where the DNS has the addresses of the other services.
    pub(crate) srv: Srv,
    /// Databases for the half messages of some topics.
    pub(crate) shards: Vec<Shard>,
    /// The topic of prepares, commits and rollbacks; `None` for no such topic.
    pub(crate) topic: Option<TopicName>,
}

/// A database for the half messages of some topics.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shard {
    pub(crate) topics: Topics,
    pub(crate) url: Address,
}

/// How services are found in the DNS.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Srv {
    /// The name of the SRV records, with `{service}` for the name of the service; empty for none.
    pub(crate) name: String,
    pub(crate) scheme: &'static str,
    /// Name servers; empty for those of the system.
    pub(crate) servers: Vec<SocketAddr>,
}

impl Default for CheckBack {
    fn default() -> Self {
        let landfall::check_back::Options { interval, timeout, concurrency, backoff } = Default::default();
        Self {
            interval,
            immunity: Duration::from_secs(30),
            timeout,
            backoff,
            concurrency,
            rules: Rules { section: "check_back", ..Rules::default() },
            keys: Vec::new(),
            databases: BTreeMap::new(),
            services: BTreeMap::new(),
            srv: Srv { name: String::new(), scheme: "http", servers: Vec::new() },
            shards: Vec::new(),
            topic: None,
        }
    }
}

/// Reads `check_back.databases`. No error repeats a URL, which may hold a password.
pub(super) fn databases(value: &Value<'_>) -> Result<BTreeMap<String, Address>, Problem> {
    let mut databases = BTreeMap::new();
    for (name, url) in table(value, "{ shop = \"postgres://…\" }")? {
        let about = |rest: String| Problem(format!(".{name}{rest}"));
        let text = url.as_str().ok_or_else(|| about(format!(" must be a URL, not {}", type_of(&url))))?;
        let url = secret::resolve(text, &|name| value.environment.get(name));
        databases.insert(name.clone(), Address::new(url.map_err(|problem| about(format!(" {problem}")))?));
    }
    Ok(databases)
}

/// Reads `check_back.services`: a base URL each, or several.
pub(super) fn services(value: &Value<'_>) -> Result<BTreeMap<String, Vec<String>>, Problem> {
    let mut services = BTreeMap::new();
    for (name, given) in table(value, "{ orders = \"http://orders:8080\" }")? {
        let about = |rest: &str| Problem(format!(".{name} {rest}"));
        let texts = match given {
            toml::Value::Array(items) => items,
            one => vec![one],
        };
        let mut urls = Vec::with_capacity(texts.len());
        for text in &texts {
            let text = text.as_str().ok_or_else(|| about("must be a URL, or an array of URLs"))?;
            receiver_url(text).map_err(about)?;
            urls.push(text.trim_end_matches('/').to_owned());
        }
        if urls.is_empty() {
            return Err(about("has no URL"));
        }
        services.insert(name, urls);
    }
    Ok(services)
}

/// Reads `check_back.shard`: topics and the URL of a database each. No error repeats a URL.
pub(super) fn shards(value: &Value<'_>) -> Result<Vec<Shard>, Problem> {
    const SHAPE: &str = "[[check_back.shard]] and below it topics and database";
    let mut shards = Vec::new();
    for (index, entry) in value.tables(SHAPE)?.iter().enumerate() {
        let about = |rest: &str| Problem(format!("[{index}]{rest}"));
        let toml::Value::Table(fields) = entry else { return Err(about(" must be a table")) };
        if let Some(unknown) = fields.keys().find(|name| !matches!(name.as_str(), "topics" | "database")) {
            return Err(about(&format!(" has the unknown key {unknown:?}; it has topics and database")));
        }
        let wrong = || about(".topics must be an array of topics such as [\"pay.*\"]");
        let topics = fields.get("topics").and_then(toml::Value::as_array).ok_or_else(wrong)?;
        let topics = topics.iter().map(|topic| topic.as_str().ok_or_else(wrong)).collect::<Result<Vec<_>, _>>()?;
        let topics = Topics::new(topics).map_err(|error| about(&format!(".topics: {error}")))?;
        let url = fields.get("database").and_then(toml::Value::as_str).ok_or_else(|| about(" needs a database"))?;
        let url = secret::resolve(url, &|name| value.environment.get(name));
        let url = Address::new(url.map_err(|problem| about(&format!(".database {problem}")))?);
        shards.push(Shard { topics, url });
    }
    Ok(shards)
}

/// Reads `check_back.srv_name`; an empty string is none.
pub(super) fn srv_name(value: &Value<'_>) -> Result<String, Problem> {
    let name = value.text()?.trim_end_matches('.');
    let is_valid = name.replace("{service}", "x").split('.').all(|label| {
        (1..=63).contains(&label.len()) && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    });
    if name.is_empty() || (is_valid && name.matches("{service}").count() == 1) {
        return Ok(name.to_owned());
    }
    Err(Problem(" must be a name with {service} in it, such as _{service}._tcp.example.com".into()))
}

/// Reads `check_back.srv_servers`; the environment gives them separated by commas.
pub(super) fn srv_servers(value: &Value<'_>) -> Result<Vec<SocketAddr>, Problem> {
    let wrong = || Problem(r#" must be an array of addresses such as ["10.0.0.2:53"]"#.into());
    let texts: Vec<String> = match value.given {
        Given::Toml(toml::Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        Given::Toml(_) => return Err(wrong()),
        Given::Text(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
    };
    texts.iter().filter(|text| !text.is_empty()).map(|text| text.parse().map_err(|_| wrong())).collect()
}

/// Reads `check_back.topic`; an empty string is none.
pub(super) fn topic(value: &Value<'_>) -> Result<Option<TopicName>, Problem> {
    if value.text()?.is_empty() { Ok(None) } else { value.parsed().map(Some) }
}

/// Reads a table; the environment gives it as TOML.
fn table(value: &Value<'_>, example: &str) -> Result<toml::Table, Problem> {
    let wrong = || Problem(format!(" must be a table such as {example}"));
    match value.given {
        Given::Toml(toml::Value::Table(table)) => Ok(table.clone()),
        Given::Toml(_) => Err(wrong()),
        Given::Text(text) => {
            let document: toml::Table = toml::from_str(&format!("table = {text}")).map_err(|_| wrong())?;
            document.get("table").and_then(toml::Value::as_table).cloned().ok_or_else(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Environment};
    use super::*;

    fn load(text: &str) -> Result<CheckBack, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("landfall.toml");
        std::fs::write(&path, text).unwrap();
        let environment = Environment::new([("SHOP_URL".to_owned(), "postgres://u:s3cret@db/shop".to_owned())]);
        Config::load(Some(path), &environment, &[]).map(|config| config.check_back).map_err(|error| error.to_string())
    }

    #[test]
    fn databases_and_services_are_tables() {
        let file = "[check_back]\ntopic = \"look_back_msg\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
                    databases = { shop = \"env:SHOP_URL\" }\n\
                    [check_back.services]\norders = \"http://a:1/\"\nbilling = [\"http://b\", \"https://c\"]\n";
        let config = load(file).unwrap();
        assert_eq!(config.databases["shop"].expose(), "postgres://u:s3cret@db/shop");
        assert_eq!((&config.services["orders"], config.services["billing"].len()), (&vec!["http://a:1".to_owned()], 2));
        assert_eq!((config.topic.unwrap().as_str(), config.keys.len()), ("look_back_msg", 1));
    }

    #[test]
    fn invalid_entries_are_refused_by_name() {
        for (line, expected) in [
            ("databases = { shop = 1 }", "check_back.databases.shop must be a URL"),
            ("databases = \"x\"", "check_back.databases must be a table such as"),
            ("databases = { shop = \"env:NOWHERE\" }", "check_back.databases.shop points at"),
            ("services = { orders = \"orders:80\" }", "check_back.services.orders must begin with"),
            ("services = { orders = [] }", "check_back.services.orders has no URL"),
            ("secret = \"short\"", "check_back.secret must be whsec_"),
            ("topic = \"a b\"", "check_back.topic: "),
            ("srv_name = \"example.com\"", "check_back.srv_name must be a name with {service}"),
            ("srv_name = \"{service}..com\"", "check_back.srv_name must be a name with {service}"),
            ("shard = [{ database = \"sqlite:a.db\" }]", "check_back.shard[0].topics must be an array"),
            (
                "shard = [{ topics = [\"a*b\"], database = \"sqlite:a.db\" }]",
                "check_back.shard[0].topics: \"a*b\" is neither",
            ),
            ("shard = [{ topics = [\"a\"] }]", "check_back.shard[0] needs a database"),
            ("shard = [{ topic = \"a\" }]", "check_back.shard[0] has the unknown key \"topic\""),
            ("srv_scheme = \"ftp\"", "check_back.srv_scheme must be http or https"),
            ("srv_servers = [\"10.0.0.2\"]", "check_back.srv_servers must be an array of addresses"),
        ] {
            let error = load(&format!("[check_back]\n{line}\n")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
