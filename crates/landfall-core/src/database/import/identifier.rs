//! Names of the user's tables and columns, as configured.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The longest name that every supported database accepts.
const LONGEST: usize = 63;

/// A column: a letter or `_`, then letters, digits, `_` and `$`, as the database stores it (PostgreSQL folds unquoted
/// names to lower case). Adapters quote it; no character in it can end a quotation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnName(Box<str>);

impl ColumnName {
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        identifier("column", text.as_ref()).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A table, with an optional schema before a dot (`shop.outbox`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    schema: Option<Box<str>>,
    table: Box<str>,
}

impl TableName {
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(identifier("schema", schema)?), table),
            None => (None, text),
        };
        Ok(Self { schema, table: identifier("table", table)? })
    }

    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the name without its schema.
    pub fn table(&self) -> &str {
        &self.table
    }
}

fn identifier(what: &str, text: &str) -> Result<Box<str>> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let continues = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'));
    if begins && continues && text.len() <= LONGEST {
        return Ok(text.into());
    }
    let shown: String = text.chars().take(LONGEST).collect();
    Err(Error::invalid(format!(
        "{what} {shown:?} must be a letter or _, followed by letters, digits, _ and $, at most {LONGEST} together"
    )))
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

impl FromStr for ColumnName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl FromStr for TableName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_cannot_escape_its_quotation() {
        for good in ["outbox", "shop.outbox", "_a$1", "Outbox"] {
            assert_eq!(TableName::new(good).unwrap().to_string(), good);
        }
        let long = "x".repeat(64);
        for bad in ["", ".", "a.", ".a", "a.b.c", "1a", "a b", "a\"b", "a`b", "a'b", "a;--", "a]", "größe", &long] {
            assert!(TableName::new(bad).is_err(), "{bad:?} was accepted as a table");
            assert!(ColumnName::new(bad).is_err(), "{bad:?} was accepted as a column");
        }
        assert!(ColumnName::new("a.b").is_err());
    }
}
