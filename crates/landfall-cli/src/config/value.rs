//! A value from one layer, parsed as the type of its key.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::{Address, Environment, secret};

/// Why a value is invalid: the end of a sentence that begins with the key's path.
#[derive(Debug)]
pub(super) struct Problem(pub(super) String);

/// A raw value. TOML from a file is typed; the environment and flags give text, which is parsed as the key's type.
#[derive(Debug, Clone)]
pub(super) enum Given {
    Toml(toml::Value),
    Text(String),
}

/// A raw value and the environment in which `env:NAME` is resolved.
pub(super) struct Value<'a> {
    pub(super) given: &'a Given,
    pub(super) environment: &'a Environment,
}

impl Value<'_> {
    pub(super) fn whole(&self, least: u64, most: u64) -> Result<u64, Problem> {
        let number = match self.given {
            Given::Toml(toml::Value::Integer(number)) => u64::try_from(*number).ok(),
            Given::Text(text) => text.trim().parse().ok(),
            Given::Toml(_) => None,
        };
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| Problem(format!(" must be a whole number from {least} to {most}, not {}", self.shown())))
    }

    /// Reads an array of tables: `[[key]]` in a file, `[{…}, …]` in the environment. `shape` completes the error.
    pub(super) fn tables(&self, shape: &str) -> Result<Vec<toml::Value>, Problem> {
        let array = match self.given {
            Given::Toml(value) => value.as_array().cloned(),
            Given::Text(text) => toml::from_str(&format!("list = {text}"))
                .ok()
                .and_then(|document: toml::Table| document.get("list")?.as_array().cloned()),
        };
        array.ok_or_else(|| Problem(format!(" must be given as {shape}")))
    }

    pub(super) fn flag(&self) -> Result<bool, Problem> {
        match self.given {
            Given::Toml(toml::Value::Boolean(flag)) => Ok(*flag),
            Given::Text(text) if text == "true" => Ok(true),
            Given::Text(text) if text == "false" => Ok(false),
            _ => Err(Problem(format!(" must be true or false, not {}", self.shown()))),
        }
    }

    pub(super) fn text(&self) -> Result<&str, Problem> {
        match self.given {
            Given::Toml(toml::Value::String(text)) | Given::Text(text) => Ok(text),
            Given::Toml(other) => Err(Problem(format!(" must be a string, not {}", type_of(other)))),
        }
    }

    /// Returns the text with `env:` and `file:` resolved. The error never repeats the text.
    pub(super) fn resolved(&self) -> Result<String, Problem> {
        secret::resolve(self.text()?, &|name| self.environment.get(name))
            .map_err(|problem| Problem(format!(" {problem}")))
    }

    pub(super) fn address(&self) -> Result<Address, Problem> {
        self.resolved().map(Address::new)
    }

    /// Parses a type whose own error is a sentence.
    pub(super) fn parsed<T: FromStr<Err = landfall::Error>>(&self) -> Result<T, Problem> {
        self.text()?.parse().map_err(|error| Problem(format!(": {error}")))
    }

    /// Parses an amount with one of [`crate::units`]; a bare number needs no quotes.
    pub(super) fn amount<T>(&self, read: fn(&str) -> Result<T, &'static str>) -> Result<T, Problem> {
        let text = match self.given {
            Given::Toml(toml::Value::Integer(number)) => number.to_string(),
            _ => self.text()?.to_owned(),
        };
        read(&text).map_err(|wanted| Problem(format!(" {wanted}, not {}", self.shown())))
    }

    pub(super) fn socket_address(&self) -> Result<SocketAddr, Problem> {
        let text = self.text()?;
        let localhost = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        localhost.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).or_else(|| text.parse().ok()).ok_or_else(
            || Problem(format!(" must be an address and a port such as 127.0.0.1:7700, not {}", self.shown())),
        )
    }

    pub(super) fn log_level(&self) -> Result<String, Problem> {
        let text = self.text()?;
        // The filter would read a misspelt level as the name of a module and then log nothing.
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let known = text.split(',').all(|part| part.contains('=') || levels.contains(&part.trim()));
        let filter = tracing_subscriber::EnvFilter::builder().parse(text);
        if !known || filter.is_err() {
            let wanted = "one of error, warn, info, debug, trace, or such as info,landfall=debug";
            return Err(Problem(format!(" must be {wanted}, not {}", self.shown())));
        }
        Ok(text.to_owned())
    }

    pub(super) fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, Problem> {
        let text = self.text()?;
        choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            Problem(format!(" must be {}, not {}", names.join(" or "), self.shown()))
        })
    }

    /// Returns the raw value for an error message; only for keys that hold no secret.
    fn shown(&self) -> String {
        match self.given {
            Given::Toml(toml::Value::Integer(number)) => number.to_string(),
            Given::Toml(toml::Value::String(text)) | Given::Text(text) => format!("{text:?}"),
            Given::Toml(other) => type_of(other).to_owned(),
        }
    }
}

pub(super) fn type_of(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a string",
        toml::Value::Integer(_) => "an integer",
        toml::Value::Float(_) => "a float",
        toml::Value::Boolean(_) => "a boolean",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "an array",
        toml::Value::Table(_) => "a table",
    }
}
