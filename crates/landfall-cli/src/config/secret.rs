//! Text that may hold a secret: how it is resolved, and how it is redacted.
//!
//! Invariant: neither `Debug` nor `Display` of these types prints a password or a token.

use std::fmt;

/// Resolves a reference: `env:NAME` is the value of an environment variable, `file:PATH` the content of a file without
/// its last line break; any other text is itself. The error is the end of a sentence about the key.
pub(crate) fn resolve(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return environment(name)
            .ok_or_else(|| format!("points at the environment variable {name:?}, which is not set"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        let content = std::fs::read_to_string(path)
            .map_err(|error| format!("points at the file {path:?}, which cannot be read: {error}"))?;
        let line = content.strip_suffix('\n').unwrap_or(&content);
        return Ok(line.strip_suffix('\r').unwrap_or(line).to_owned());
    }
    Ok(text.to_owned())
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The URL of a database or a broker. `Display` shows it without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the URL with its password; only for the adapter.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the part before the first colon in lower case, or an empty string.
    pub(crate) fn scheme(&self) -> String {
        self.0.split_once(':').map_or_else(String::new, |(scheme, _)| scheme.to_ascii_lowercase())
    }

    /// Returns the part after the first colon.
    pub(crate) fn rest(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(_, rest)| rest)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Replaces passwords with `***`. Everything up to the last `@` counts as user information: a password that is not
/// percent-encoded then hides too much of the URL, never too little.
fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return hide_parameters(url) };
    let Some((user_information, host)) = rest.rsplit_once('@') else {
        return format!("{scheme}://{}", hide_parameters(rest));
    };
    let shown = match user_information.split_once(':') {
        Some((user, _)) => format!("{user}:***"),
        None => user_information.to_owned(),
    };
    format!("{scheme}://{shown}@{}", hide_parameters(host))
}

/// Redacts query parameters; drivers also accept a password there.
fn hide_parameters(text: &str) -> String {
    let Some((before, parameters)) = text.split_once('?') else { return text.to_owned() };
    let shown: Vec<String> = parameters
        .split('&')
        .map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}=***"),
            _ => parameter.to_owned(),
        })
        .collect();
    format!("{before}?{}", shown.join("&"))
}

fn is_secret(parameter: &str) -> bool {
    let name = parameter.to_ascii_lowercase();
    ["password", "secret", "token", "access_key", "account_key", "sas_key"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_url_hides_the_password() {
        for (url, shown) in [
            ("postgres://shop:s3cret@db/shop", "postgres://shop:***@db/shop"),
            ("postgres://shop:s3/cr@et@db:5432/shop", "postgres://shop:***@db:5432/shop"),
            ("postgres://shop@db/shop?sslmode=require", "postgres://shop@db/shop?sslmode=require"),
            ("postgres://db/shop?user=a&password=s3cret", "postgres://db/shop?user=a&password=***"),
            ("postgres://db/shop?sslpassword=s3cret&x=1", "postgres://db/shop?sslpassword=***&x=1"),
            ("sqlite:landfall-data/landfall.db", "sqlite:landfall-data/landfall.db"),
        ] {
            let address = Address::new(url);
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(address.expose(), url);
        }
        assert_eq!(format!("{:?}", Secret::new("s3cret".into())), "***");
    }

    #[test]
    fn secret_is_read_from_environment_or_file() {
        let environment = |name: &str| (name == "SHOP_URL").then(|| "postgres://db/shop".to_owned());
        assert_eq!(resolve("env:SHOP_URL", &environment).unwrap(), "postgres://db/shop");
        assert_eq!(resolve("sqlite:x", &environment).unwrap(), "sqlite:x");

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        std::fs::write(&path, "postgres://db/other\n").unwrap();
        assert_eq!(resolve(&format!("file:{}", path.display()), &environment).unwrap(), "postgres://db/other");

        assert_eq!(
            resolve("env:NOWHERE", &environment).unwrap_err(),
            r#"points at the environment variable "NOWHERE", which is not set"#
        );
        assert!(resolve("file:/nowhere/at/all", &environment).unwrap_err().contains("cannot be read"));
    }
}
