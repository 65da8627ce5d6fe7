//! The database and the broker, selected by the scheme of their URLs.
//!
//! An adapter is one registration in [`database`] or [`broker`]; no other code of the command names one. A registration
//! lists what the adapter can do, so that a missing capability is an error before anything is opened.

pub(crate) mod broker;
pub(crate) mod database;
mod files;
mod log;
mod remote;
mod settings;
pub(crate) mod shards;

use std::pin::Pin;

pub(crate) use database::Database;

use crate::config::{Address, Config};
use crate::error::{Error, Result};

type Opening<'a, T> = Pin<Box<dyn Future<Output = landfall::Result<T>> + Send + 'a>>;

/// Refuses URLs that no adapter of this build supports, before either is opened.
pub(crate) fn check(config: &Config) -> Result<()> {
    database::check(config)?;
    broker::check(config)
}

/// An adapter under its URL schemes.
struct Registration<A> {
    schemes: &'static [&'static str],
    /// The adapter, or the Cargo feature that adds it to the build.
    adapter: std::result::Result<A, &'static str>,
}

impl<A> Registration<A> {
    fn built_in(schemes: &'static [&'static str], adapter: A) -> Self {
        Self { schemes, adapter: Ok(adapter) }
    }

    #[allow(dead_code, reason = "used only by builds without some feature")]
    fn missing(schemes: &'static [&'static str], feature: &'static str) -> Self {
        Self { schemes, adapter: Err(feature) }
    }
}

/// Returns the adapter for `url`, or an error that lists the known schemes or names the missing feature.
fn select_adapter<A>(what: &str, url: &Address, registrations: Vec<Registration<A>>) -> Result<A> {
    let scheme = url.scheme();
    let known: Vec<String> =
        registrations.iter().flat_map(|one| one.schemes).map(|scheme| format!("{scheme}:")).collect();
    let known = known.join(", ");
    let Some(found) = registrations.into_iter().find(|one| one.schemes.contains(&scheme.as_str())) else {
        return Err(Error::usage(if scheme.is_empty() {
            format!("the {what} URL has no scheme; the known ones are {known}")
        } else {
            format!("the {what} URL has the unknown scheme {scheme:?}; the known ones are {known}")
        }));
    };
    found.adapter.map_err(|feature| {
        Error::usage(format!("this build has no adapter for {scheme}: URLs; build landfall with --features {feature}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_or_missing_adapter_is_explained() {
        let select = |url: &str| {
            let registrations = vec![
                Registration::built_in(&["sqlite"], "the adapter"),
                Registration::missing(&["postgres", "postgresql"], "postgres"),
            ];
            select_adapter("database", &Address::new(url), registrations)
        };
        assert_eq!(select("SQLite:a.db").unwrap(), "the adapter");
        for (url, error) in [
            (
                "oracle://u:secret@h/d",
                "the database URL has the unknown scheme \"oracle\"; the known ones are sqlite:, postgres:, \
                 postgresql:",
            ),
            ("data.db", "the database URL has no scheme; the known ones are sqlite:, postgres:, postgresql:"),
            (
                "postgresql://u:secret@h/d",
                "this build has no adapter for postgresql: URLs; build landfall with --features postgres",
            ),
        ] {
            assert_eq!(select(url).unwrap_err().to_string(), error);
        }
    }
}
