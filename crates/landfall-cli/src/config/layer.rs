//! The layers above the defaults: a file, the environment, flags.
//!
//! Each layer becomes a list of settings that record their origin, so that every error can name it.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::value::{Given, Problem, Value};
use super::{Config, key};
use crate::error::{Error, Result};

/// The variable that names the configuration file, like `--config`.
pub(super) const FILE_VARIABLE: &str = "LANDFALL_CONFIG";

const PREFIX: &str = "LANDFALL_";

/// Short names of frequently used variables.
const ALIASES: &[(&str, &str)] = &[("LANDFALL_LISTEN", "http.listen")];

/// Prefix of variables that configure the test servers and are no configuration keys.
const FOREIGN: &str = "LANDFALL_TEST_";

/// One key with its value and the origin of that value.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) path: String,
    given: Given,
    /// `landfall.toml, line 3`, `LANDFALL_RELAY_BATCH`, `--listen`.
    origin: String,
}

impl Setting {
    pub(super) fn apply(&self, config: &mut Config, environment: &Environment) -> Result<()> {
        let Some(key) = key::find(&self.path) else { return Err(self.unknown()) };
        let value = Value { given: &self.given, environment };
        (key.set)(config, &value).map_err(|Problem(rest)| Error::usage(format!("{}: {}{rest}", self.origin, self.path)))
    }

    fn unknown(&self) -> Error {
        let (origin, path) = (&self.origin, &self.path);
        let sections = key::sections();
        Error::usage(if sections.contains(&path.as_str()) {
            format!("{origin}: {path} is a section; write [{path}] and its keys below")
        } else if let Some(nearest) = key::nearest(path) {
            format!("{origin}: unknown key {path:?}; did you mean {nearest:?}?")
        } else {
            format!("{origin}: unknown key {path:?}; the sections are {}", sections.join(", "))
        })
    }
}

/// Returns the settings of a file, in file order.
pub(super) fn from_toml(file: &str, text: &str) -> Result<Vec<Setting>> {
    let line_at = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    let broken = |error: toml::de::Error| {
        let line = error.span().map_or_else(String::new, |span| format!(", line {}", line_at(span.start)));
        Error::usage(format!("{file}{line}: the configuration is not valid TOML: {}", error.message()))
    };
    // Parsed twice: with spans, for the line numbers, and as plain values.
    let spans = DeTable::parse(text).map_err(broken)?;
    let values: toml::Table = toml::from_str(text).map_err(broken)?;

    let mut found = Vec::new();
    for (section, content) in spans.get_ref() {
        let name = section.get_ref().as_ref();
        match content.get_ref() {
            DeValue::Table(keys) if !keys.is_empty() => {
                for key in keys.keys() {
                    let value = values.get(name).and_then(|keys| keys.get(key.get_ref().as_ref()));
                    found.push((key.span().start, format!("{name}.{}", key.get_ref()), value));
                }
            }
            // An empty section changes nothing if it is a known one.
            DeValue::Table(_) if key::sections().contains(&name) => {}
            _ => found.push((section.span().start, name.to_owned(), values.get(name))),
        }
    }
    found.sort_by_key(|(at, ..)| *at);
    let setting = |(at, path, value): (usize, String, Option<&toml::Value>)| {
        let given = Given::Toml(value?.clone());
        Some(Setting { path, given, origin: format!("{file}, line {}", line_at(at)) })
    };
    Ok(found.into_iter().filter_map(setting).collect())
}

/// Environment variables: those of this process, or a test's.
#[derive(Debug)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(crate) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// Returns this process's environment, without variables that are not UTF-8.
    pub(crate) fn from_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::new(std::env::vars_os().filter_map(text))
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        let setting = |(name, value): (&String, &String)| {
            let path = path_of(name)?.to_owned();
            Some(Setting { path, given: Given::Text(value.clone()), origin: name.clone() })
        };
        self.0.iter().filter_map(setting).collect()
    }

    /// Returns a sentence for each variable that looks like a key and matches none. No error: an orchestrator may set
    /// variables with the same prefix.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let is_unknown = |name: &&String| {
            let is_ours = name.starts_with(PREFIX) && !name.starts_with(FOREIGN) && name.as_str() != FILE_VARIABLE;
            is_ours && path_of(name).is_none() && !is_kubernetes_service(name)
        };
        self.0.keys().filter(is_unknown).map(|name| unknown_variable(name)).collect()
    }
}

/// Whether Kubernetes sets this variable in every pod beside a service called `landfall`.
fn is_kubernetes_service(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or_default();
    match rest.split('_').collect::<Vec<_>>()[..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] | ["PORT"] => true,
        ["PORT", number, "TCP" | "UDP" | "SCTP"]
        | ["PORT", number, "TCP" | "UDP" | "SCTP", "ADDR" | "PORT" | "PROTO"] => number.parse::<u16>().is_ok(),
        _ => false,
    }
}

fn variable_of(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "_").to_ascii_uppercase())
}

fn path_of(variable: &str) -> Option<&'static str> {
    let alias = ALIASES.iter().find(|(name, _)| *name == variable).map(|(_, path)| *path);
    alias.or_else(|| key::paths().find(|path| variable_of(path) == variable))
}

fn unknown_variable(name: &str) -> String {
    let known: Vec<String> = key::paths().map(variable_of).collect();
    let nearest = key::closest(name, known.iter().map(String::as_str), |known| {
        // Compared without the shared prefix, which would make all names similar.
        strsim::jaro_winkler(name.trim_start_matches(PREFIX), known.trim_start_matches(PREFIX))
    });
    let hint = nearest.map_or_else(
        || "the variable of a key is LANDFALL_SECTION_NAME".to_owned(),
        |nearest| format!("did you mean {nearest}?"),
    );
    format!("the environment variable {name} matches no configuration key and is ignored; {hint}")
}

/// A command-line flag that sets a key.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    flag: &'static str,
    path: &'static str,
    text: String,
}

impl Flag {
    pub(crate) fn new(flag: &'static str, path: &'static str, text: impl Into<String>) -> Self {
        Self { flag, path, text: text.into() }
    }

    pub(super) fn setting(&self) -> Setting {
        Setting { path: self.path.to_owned(), given: Given::Text(self.text.clone()), origin: self.flag.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_share_a_variable() {
        let mut variables: Vec<String> = key::paths().map(variable_of).collect();
        variables.extend(ALIASES.iter().map(|(name, _)| (*name).to_owned()));
        variables.sort();
        let all = variables.len();
        variables.dedup();
        assert_eq!(variables.len(), all);
        assert!(ALIASES.iter().all(|(_, path)| key::find(path).is_some()));
    }

    #[test]
    fn kubernetes_service_variables_are_ignored() {
        let warnings = |names: &[&str]| {
            let variables = names.iter().map(|name| ((*name).to_owned(), "tcp://10.0.0.1:7700".to_owned()));
            Environment::new(variables).warnings()
        };
        let injected = [
            "LANDFALL_SERVICE_HOST",
            "LANDFALL_SERVICE_PORT",
            "LANDFALL_SERVICE_PORT_HTTP_API",
            "LANDFALL_PORT",
            "LANDFALL_PORT_7700_TCP",
            "LANDFALL_PORT_7700_TCP_ADDR",
            "LANDFALL_PORT_7700_TCP_PORT",
            "LANDFALL_PORT_7700_UDP_PROTO",
        ];
        assert_eq!(warnings(&injected), [""; 0]);
        for name in ["LANDFALL_PORTS", "LANDFALL_SERVICE", "LANDFALL_PORT_X_TCP", "LANDFALL_PORT_1_TCP_NAME"] {
            assert_eq!(warnings(&[name]).len(), 1, "{name}");
        }
    }
}
