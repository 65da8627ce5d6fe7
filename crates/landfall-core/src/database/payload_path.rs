//! A condition on one value of a JSON payload.

use std::fmt;

use crate::{Error, Result};

/// The most steps of a path, so that every database accepts it.
const MAX_STEPS: usize = 32;

const MAX_NAME: usize = 64;

const MAX_VALUE: usize = 1000;

/// Selects payloads in which the value at a path equals a value: `$.order.items[0].id:42`, or with `=` for `:`.
///
/// A path consists of members, of letters, digits, `_` and `-`, and of array indices; there is nothing else. A value
/// equals if it is the JSON text there, such as `42` or `true`, or the content of a string. Numbers are compared as
/// they are written, so that 64-bit integers are exact. Payloads that are not JSON do not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadPath {
    steps: Vec<Step>,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(u32),
}

impl PayloadPath {
    /// Returns the path in SQL's notation, with quoted members. Contains nothing but what the grammar allows.
    pub fn to_sql_path(&self) -> String {
        let mut path = "$".to_owned();
        for step in &self.steps {
            match step {
                Step::Member(name) => path.push_str(&format!(".\"{name}\"")),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for PayloadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.steps {
            match step {
                Step::Member(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        write!(f, ":{}", self.value)
    }
}

impl std::str::FromStr for PayloadPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid(format!("{text:?} is not a path and a value such as $.order.items[0].id:42"));
        let mut rest = text.strip_prefix('$').ok_or_else(wrong)?;
        let mut steps = Vec::new();
        let value = loop {
            if let Some(value) = rest.strip_prefix([':', '=']) {
                break value;
            }
            let (step, after) = step(rest).ok_or_else(wrong)?;
            steps.push(step);
            rest = after;
        };
        let is_bounded = steps.len() <= MAX_STEPS && value.chars().count() <= MAX_VALUE;
        if steps.is_empty() || value.is_empty() || !is_bounded || value.contains('\0') {
            return Err(wrong());
        }
        Ok(Self { steps, value: value.to_owned() })
    }
}

/// Returns the first step and the rest.
fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (digits, rest) = rest.split_once(']')?;
        let is_plain = (1..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        return is_plain.then(|| Some((Step::Index(digits.parse().ok()?), rest))).flatten();
    }
    let rest = text.strip_prefix('.')?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    (1..=MAX_NAME).contains(&name.len()).then(|| (Step::Member(name.to_owned()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_members_and_indices_only() {
        let path: PayloadPath = "$.order.items[0].id:42".parse().unwrap();
        assert_eq!((path.to_sql_path().as_str(), path.value()), (r#"$."order"."items"[0]."id""#, "42"));
        assert_eq!(path.to_string(), "$.order.items[0].id:42");
        assert_eq!("$[3].a-b=c:d=e".parse::<PayloadPath>().unwrap().value(), "c:d=e");
        let long = format!("${}:1", ".a".repeat(33));
        for wrong in [
            "",
            "$",
            "$:1",
            "$.a",
            "$.a:",
            "a:1",
            "$a:1",
            "$..a:1",
            "$.*:1",
            "$[*]:1",
            "$[-1]:1",
            "$[1:1",
            "$.a\":1",
            "$.\"a\":1",
            "$['a']:1",
            "$[?(@.a)]:1",
            "$.a b:1",
            "$[1234567]:1",
            "$.a:\0",
            &long,
        ] {
            assert!(wrong.parse::<PayloadPath>().is_err(), "{wrong:?} was accepted");
        }
    }
}
