//! The filter of dead letters: query parameters of the list, fields of a redrive.

use landfall::{DeadLetterFilter, DeadLetterStatus, ErrorCode, GroupName, Key, TextSearch, Timestamp, TopicName};

use super::{letter_id, words};
use crate::http::problem::Problem;

/// The longest text that is searched for.
const MAX_SEARCH_CHARACTERS: usize = 200;

const FINGERPRINT_DIGITS: usize = 16;

/// Collects conditions by name.
#[derive(Debug, Default)]
pub(in crate::http) struct Conditions {
    filter: DeadLetterFilter,
    /// The status is `open` or `all`.
    is_wide: Option<bool>,
    search: Option<String>,
}

impl Conditions {
    /// Adds a condition. Returns whether the name is one, and refuses repeated and invalid ones.
    pub(in crate::http) fn add(&mut self, name: &str, value: &str) -> Result<bool, Problem> {
        let filter = &mut self.filter;
        let is_repeated = match name {
            "id" => filter.id.replace(letter_id(value)?).is_some(),
            "message_id" => filter.message_id.replace(value.parse()?).is_some(),
            "topic" => filter.topic.replace(TopicName::new(value)?).is_some(),
            "key" => filter.key.replace(Key::new(value)?).is_some(),
            "group" => filter.group.replace(GroupName::new(value)?).is_some(),
            "code" => filter.error_code.replace(code(value)?).is_some(),
            "fingerprint" => filter.fingerprint.replace(fingerprint(value)?).is_some(),
            "trace_id" => filter.trace_id.replace(trace(value)?).is_some(),
            "from" => filter.from.replace(value.parse()?).is_some(),
            "to" => filter.to.replace(value.parse::<Timestamp>()?).is_some(),
            "q" => self.search.replace(words("q", value, MAX_SEARCH_CHARACTERS)?.to_owned()).is_some(),
            "path" => filter.path.replace(value.parse()?).is_some(),
            "state" => filter.group_state.replace(value.parse()?).is_some(),
            "status" => return self.add_status(value),
            _ => return Ok(false),
        };
        if is_repeated { Err(repeated(name)) } else { Ok(true) }
    }

    fn add_status(&mut self, value: &str) -> Result<bool, Problem> {
        if self.filter.status.is_some() || self.is_wide.is_some() {
            return Err(repeated("status"));
        }
        match value {
            "open" => self.is_wide = Some(true),
            "all" => self.is_wide = Some(false),
            value => self.filter.status = Some(value.parse::<DeadLetterStatus>()?),
        }
        self.filter.open = self.is_wide == Some(true);
        Ok(true)
    }

    /// Returns the filter as it is given.
    pub(in crate::http) fn filter(self, searches_payload: bool) -> DeadLetterFilter {
        let text = self.search.map(|text| TextSearch { text, in_payload: searches_payload });
        DeadLetterFilter { text, ..self.filter }
    }

    /// Returns the filter of a list: open letters unless a status or a single letter is named.
    pub(super) fn or_open(mut self, searches_payload: bool) -> DeadLetterFilter {
        let names_one = self.filter.id.is_some() || self.filter.message_id.is_some();
        if self.filter.status.is_none() && self.is_wide.is_none() && !names_one {
            self.filter.open = true;
        }
        self.filter(searches_payload)
    }
}

pub(super) fn repeated(name: &str) -> Problem {
    Problem::invalid(format!("the parameter {name} is repeated"))
}

pub(super) fn unknown(name: &str) -> Problem {
    Problem::invalid(format!("the parameter {name:?} is unknown"))
}

fn code(text: &str) -> Result<String, Problem> {
    let is_valid = !text.is_empty() && ErrorCode::new(text).as_str() == text;
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        Problem::invalid(format!("code {text:?} must have 1 to 64 upper-case letters, digits and underscores"))
    })
}

pub(in crate::http) fn fingerprint(text: &str) -> Result<String, Problem> {
    let is_valid = text.split_once('-').is_some_and(|(version, hash)| {
        let is_version = (1..=3).contains(&version.len()) && version.bytes().all(|byte| byte.is_ascii_digit());
        is_version && hash.len() == FINGERPRINT_DIGITS && is_hex(hash)
    });
    is_valid.then(|| text.to_owned()).ok_or_else(|| Problem::invalid(format!("{text:?} is not a fingerprint")))
}

fn trace(text: &str) -> Result<String, Problem> {
    let is_valid = text.len() == 32 && is_hex(text);
    is_valid
        .then(|| text.to_owned())
        .ok_or_else(|| Problem::invalid(format!("trace_id {text:?} must have 32 hexadecimal digits in lower case")))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Conditions, Problem> {
        let mut conditions = Conditions::default();
        for (name, value) in pairs {
            assert!(conditions.add(name, value)?, "{name} is unknown");
        }
        Ok(conditions)
    }

    #[test]
    fn every_condition_is_parsed() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let pairs = [
            ("id", "7"),
            ("topic", "orders"),
            ("key", "k 1"),
            ("group", "billing"),
            ("code", "HANDLER_ERROR"),
            ("fingerprint", "1-0123456789abcdef"),
            ("trace_id", trace),
            ("from", "2026-11-18T08:00:00Z"),
            ("to", "2026-11-18T09:00:00Z"),
            ("status", "parked"),
            ("q", "no stock"),
        ];
        let filter = parse(&pairs).unwrap().filter(true);
        assert_eq!((filter.id, filter.status), (Some(7), Some(DeadLetterStatus::Parked)));
        assert_eq!(filter.text, Some(TextSearch { text: "no stock".into(), in_payload: true }));
        assert_eq!((filter.trace_id.as_deref(), filter.from.is_some() && filter.to.is_some()), (Some(trace), true));
        for (name, value) in pairs {
            assert!(parse(&[(name, value), (name, value)]).is_err(), "{name} was accepted twice");
        }
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for (name, value) in [
            ("id", "0"),
            ("code", "handler"),
            ("code", ""),
            ("fingerprint", "0123456789abcdef"),
            ("trace_id", "4BF92F3577B34DA6A3CE929D0E0E4736"),
            ("q", ""),
            ("status", "x"),
        ] {
            assert!(parse(&[(name, value)]).is_err(), "{name}={value} was accepted");
        }
        assert!(!Conditions::default().add("x", "1").unwrap());
    }

    #[test]
    fn list_shows_open_letters_by_default() {
        let open = |pairs| parse(pairs).unwrap().or_open(false).open;
        assert!(open(&[]) && open(&[("topic", "orders")]) && open(&[("status", "open")]));
        assert!(!open(&[("status", "all")]) && !open(&[("id", "7")]) && !open(&[("status", "done")]));
        assert!(parse(&[("status", "all")]).unwrap().filter(false).is_empty(), "all is no condition");
    }
}
