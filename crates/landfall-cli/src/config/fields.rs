//! One table of an array of tables, such as `[[subscription]]`.

use std::str::FromStr;
use std::time::Duration;

use super::key::closest;
use super::secret;
use super::value::{Given, Problem, Value, type_of};

/// The fields of one table, and the environment in which `env:NAME` is resolved.
pub(super) struct Fields<'a> {
    pub(super) fields: &'a toml::Table,
    pub(super) value: &'a Value<'a>,
}

impl<'a> Fields<'a> {
    /// Refuses a field that is not in `known`, and names the nearest one.
    pub(super) fn read(entry: &'a toml::Value, value: &'a Value<'a>, known: &[&str]) -> Result<Self, Problem> {
        let toml::Value::Table(fields) = entry else {
            return Err(Problem(format!(" must be a table, not {}", type_of(entry))));
        };
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let meant = closest(unknown, known.iter().copied(), |known| strsim::jaro_winkler(unknown, known));
            let hint = meant.map_or(format!(" it has {}", known.join(", ")), |name| format!(" did you mean {name:?}?"));
            return Err(Problem(format!(" has the unknown key {unknown:?};{hint}")));
        }
        Ok(Self { fields, value })
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.fields.get(name) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Problem(format!(".{name} must be a string, not {}", type_of(other)))),
        }
    }

    pub(super) fn parsed<T: FromStr<Err = landfall::Error>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.text(name)?.ok_or_else(|| Problem(format!(" needs a {name}")))?;
        text.parse().map_err(|error| Problem(format!(".{name}: {error}")))
    }

    pub(super) fn resolved(&self, name: &str) -> Result<Option<String>, Problem> {
        self.text(name)?.map(|text| self.resolve(name, text)).transpose()
    }

    fn resolve(&self, name: &str, text: &str) -> Result<String, Problem> {
        let resolved = secret::resolve(text, &|name| self.value.environment.get(name));
        resolved.map_err(|problem| Problem(format!(".{name} {problem}")))
    }

    pub(super) fn whole(&self, name: &str, default: u64, least: u64, most: u64) -> Result<u64, Problem> {
        match self.fields.get(name) {
            None => Ok(default),
            Some(given) => Value { given: &Given::Toml(given.clone()), environment: self.value.environment }
                .whole(least, most)
                .map_err(|Problem(rest)| Problem(format!(".{name}{rest}"))),
        }
    }

    /// Reads a boolean that defaults to false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.fields.get(name) {
            None => Ok(false),
            Some(toml::Value::Boolean(said)) => Ok(*said),
            Some(other) => Err(Problem(format!(".{name} must be true or false, not {}", type_of(other)))),
        }
    }

    pub(super) fn millis(&self, name: &str, default: u64, most: u64) -> Result<Duration, Problem> {
        self.whole(name, default, 1, most).map(Duration::from_millis)
    }
}
