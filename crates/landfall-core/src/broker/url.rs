//! `scheme://user:password@host:port,host:port/path?name=value`: the address and the options of a broker.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A parsed broker URL. Every part is percent-decoded; `Debug` omits the password.
///
/// An adapter takes the parameters it knows and then calls [`BrokerUrl::finish`], which refuses any other by name.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrl {
    pub scheme: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// At least one host, each with its port if given.
    pub hosts: Vec<(String, Option<u16>)>,
    /// Without its leading slash; empty if there is none.
    pub path: String,
    parameters: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl BrokerUrl {
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| Error::invalid("the broker URL has no ://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(account, hosts)| (Some(account), hosts));
        let (user, password) = match account.map(|account| account.split_once(':').unwrap_or((account, ""))) {
            Some((user, password)) => (some(decode(user)?), some(decode(password)?)),
            None => (None, None),
        };
        let mut parameters = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if parameters.insert(decode(name)?, decode(value)?).is_some() {
                return Err(Error::invalid(format!("the broker URL gives {name} twice")));
            }
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password,
            hosts: hosts.split(',').map(host).collect::<Result<_>>()?,
            path: decode(path)?,
            parameters,
            known: Vec::new(),
        })
    }

    /// Takes the parameter `name`, if given.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.parameters.remove(name)
    }

    /// Takes and parses the parameter `name`; `expected` describes valid values in the error.
    pub fn take_parsed<T: FromStr>(&mut self, name: &'static str, expected: &str) -> Result<Option<T>> {
        let parse = |value: String| {
            let parsed = value.parse();
            parsed.map_err(|_| Error::invalid(format!("the broker URL says {name}={value}; it must be {expected}")))
        };
        self.take(name).map(parse).transpose()
    }

    /// Refuses the parameters that were not taken.
    pub fn finish(self) -> Result<()> {
        let Some(name) = self.parameters.keys().next() else { return Ok(()) };
        let known = if self.known.is_empty() { "there are none".into() } else { self.known.join(", ") };
        Err(Error::invalid(format!("{}: URLs have no parameter {name:?}; the known ones: {known}", self.scheme)))
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn host(text: &str) -> Result<(String, Option<u16>)> {
    let wrong = || Error::invalid(format!("{text:?} in the broker URL is no host with an optional :port"));
    // An IPv6 address is enclosed in brackets, which are not part of it.
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(wrong)) {
        Some(bracketed) => {
            let (host, rest) = bracketed?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(wrong)?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || (host.contains(':') && !text.starts_with('[')) {
        return Err(wrong());
    }
    let port = port.map(|port| port.parse().map_err(|_| wrong())).transpose()?;
    Ok((decode(host)?, port))
}

fn decode(text: &str) -> Result<String> {
    let wrong = || Error::invalid("the broker URL holds a % that is not followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &rest[2..];
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    match text.contains(['\r', '\n', '\0']) {
        true => Err(Error::invalid("the broker URL holds a line end or a NUL")),
        false => Ok(text),
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters: Vec<_> = self.parameters.keys().collect();
        f.debug_struct("BrokerUrl")
            .field("scheme", &self.scheme)
            .field("user", &self.user)
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .field("parameters", &parameters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found() {
        let url = "KAFKA://shop:p%40ss%2Fword@a:9092,b,[::1]:9094/x?prefix=shop.&tls=true";
        let mut url = BrokerUrl::parse(url).unwrap();
        assert_eq!((url.scheme.as_str(), url.path.as_str()), ("kafka", "x"));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("shop"), Some("p@ss/word")));
        let hosts = [("a".to_owned(), Some(9092)), ("b".to_owned(), None), ("::1".to_owned(), Some(9094))];
        assert_eq!(url.hosts, hosts);
        assert_eq!(url.take("prefix").as_deref(), Some("shop."));
        assert_eq!(url.take_parsed::<bool>("tls", "true or false").unwrap(), Some(true));
        assert_eq!(url.take("ca"), None);
        assert!(!format!("{url:?}").contains("ss/word"), "{url:?}");
        url.finish().unwrap();
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        for (url, sentence) in [
            ("kafka:host", "the broker URL has no ://"),
            ("kafka://", r#""" in the broker URL is no host with an optional :port"#),
            ("kafka://a:b:c", r#""a:b:c" in the broker URL is no host with an optional :port"#),
            ("kafka://a:99999", r#""a:99999" in the broker URL is no host with an optional :port"#),
            ("kafka://a?x=1&x=2", "the broker URL gives x twice"),
            ("kafka://a?x=%0a", "the broker URL holds a line end or a NUL"),
            ("kafka://a?x=%zz", "the broker URL holds a % that is not followed by two hexadecimal digits of UTF-8"),
        ] {
            assert_eq!(BrokerUrl::parse(url).unwrap_err().to_string(), sentence);
        }
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        let mut url = BrokerUrl::parse("nats://a?prefx=shop&wait=soon").unwrap();
        let wrong = url.take_parsed::<u32>("wait", "a number").unwrap_err();
        assert_eq!(wrong.to_string(), "the broker URL says wait=soon; it must be a number");
        url.take("prefix");
        let sentence = r#"nats: URLs have no parameter "prefx"; the known ones: wait, prefix"#;
        assert_eq!(url.finish().unwrap_err().to_string(), sentence);
    }
}
