//! Topic templates over the columns of a row.

use std::fmt;
use std::str::FromStr;

use super::ColumnName;
use crate::{Error, Result};

/// Text in which `{column}` is replaced by the column's value, such as `outbox.event.{aggregatetype}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Column(ColumnName),
}

impl TopicTemplate {
    pub fn new(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::invalid(format!("topic template {text:?} {why}"));
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let inside = brace.strip_prefix('{').ok_or_else(|| wrong("has a } without a {"))?;
            let (column, after) = inside.split_once('}').ok_or_else(|| wrong("has a { without a }"))?;
            parts.push(Part::Column(ColumnName::new(column)?));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.is_empty() {
            return Err(wrong("is empty"));
        }
        Ok(Self { parts })
    }

    /// Returns the referenced columns, in order of appearance.
    pub fn columns(&self) -> impl Iterator<Item = &ColumnName> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Column(column) => Some(column),
        })
    }

    /// Returns the topic as text, not yet validated; `value` returns a column's content.
    pub(super) fn fill<'a>(&self, value: impl Fn(&ColumnName) -> Result<Option<&'a str>>) -> Result<String> {
        let mut topic = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => topic.push_str(text),
                Part::Column(column) => topic.push_str(
                    value(column)?
                        .ok_or_else(|| Error::invalid(format!("column {column} is null and names no topic")))?,
                ),
            }
        }
        Ok(topic)
    }
}

impl fmt::Display for TopicTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Column(column) => write!(f, "{{{column}}}"),
        })
    }
}

impl FromStr for TopicTemplate {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_in_braces_are_replaced() {
        let filled = |template: &str| {
            let value = |column: &ColumnName| Ok((column.as_str() != "missing").then_some("Order"));
            TopicTemplate::new(template).unwrap().fill(value).map_err(|error| error.to_string())
        };
        assert_eq!(filled("outbox.event.{aggregatetype}").unwrap(), "outbox.event.Order");
        assert_eq!(filled("{a}-{b}.v1").unwrap(), "Order-Order.v1");
        assert_eq!(filled("orders").unwrap(), "orders");
        assert_eq!(filled("x.{missing}").unwrap_err(), "column missing is null and names no topic");
        for bad in ["", "a{", "a}", "{}", "{a b}", "{a{b}}"] {
            assert!(TopicTemplate::new(bad).is_err(), "{bad:?} was accepted");
        }
        assert_eq!(TopicTemplate::new("a.{b}.c").unwrap().to_string(), "a.{b}.c");
    }
}
