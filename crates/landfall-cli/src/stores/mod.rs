//! The database and the broker, picked by the scheme of their URLs.
//!
//! Adding an adapter is one line in [`database`] or [`broker`]; nothing else in the command names one.

pub(crate) mod broker;
pub(crate) mod database;
mod files;
mod log;
mod remote;

use std::pin::Pin;

pub(crate) use database::Database;

use crate::config::{Address, Config};
use crate::error::{Error, Result};

type Opening<'a, T> = Pin<Box<dyn Future<Output = landfall::Result<T>> + Send + 'a>>;

/// Refuses URLs that no adapter of this build understands, before any of the two is opened.
pub(crate) fn check(config: &Config) -> Result<()> {
    database::check(config)?;
    broker::check(config)
}

/// The schemes of one adapter, and the feature that brings it where this build does not have it.
struct Scheme {
    names: &'static [&'static str],
    missing_feature: Option<&'static str>,
}

impl Scheme {
    const fn built_in(names: &'static [&'static str]) -> Self {
        Self { names, missing_feature: None }
    }
}

/// The place of the adapter for `url` among `schemes`, or a sentence that says what there is.
fn pick(what: &str, url: &Address, schemes: &[&Scheme]) -> Result<usize> {
    let wanted = url.scheme();
    let Some(place) = schemes.iter().position(|scheme| scheme.names.contains(&wanted.as_str())) else {
        let known: Vec<String> =
            schemes.iter().flat_map(|scheme| scheme.names).map(|name| format!("{name}:")).collect();
        let known = known.join(", ");
        return Err(Error::wrong_use(if wanted.is_empty() {
            format!("the {what} URL has no scheme; the known ones are {known}")
        } else {
            format!("the {what} URL begins with {wanted:?}, which no adapter understands; the known ones are {known}")
        }));
    };
    match schemes[place].missing_feature {
        None => Ok(place),
        Some(feature) => Err(Error::wrong_use(format!(
            "this build has no adapter for {wanted}: URLs; build landfall with --features {feature}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_opened_is_a_sentence() {
        let here = Scheme::built_in(&["sqlite"]);
        let elsewhere = Scheme { names: &["postgres", "postgresql"], missing_feature: Some("postgres") };
        let schemes = [&here, &elsewhere];
        assert_eq!(pick("database", &Address::new("SQLite:a.db"), &schemes).unwrap(), 0);
        for (url, sentence) in [
            (
                "oracle://u:secret@h/d",
                r#"the database URL begins with "oracle", which no adapter understands; the known ones are sqlite:, postgres:, postgresql:"#,
            ),
            ("data.db", "the database URL has no scheme; the known ones are sqlite:, postgres:, postgresql:"),
            (
                "postgresql://u:secret@h/d",
                "this build has no adapter for postgresql: URLs; build landfall with --features postgres",
            ),
        ] {
            assert_eq!(pick("database", &Address::new(url), &schemes).unwrap_err().to_string(), sentence);
        }
    }
}
