//! Values and rows of portable statements: 64-bit numbers, texts and bytes.

use landfall_core::{Error, ErrorKind, Result};
use sqlx::query::Query;
use sqlx::{ColumnIndex, Database, Decode, Encode, Row, Type};

/// A value to bind, or one of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Number(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Number,
    Text,
    Bytes,
}

/// Binds the values of a statement, in order.
pub fn bind_values<DB>(mut query: Query<'_, DB, DB::Arguments>, values: Vec<Value>) -> Query<'_, DB, DB::Arguments>
where
    DB: Database,
    DB::Arguments: sqlx::Arguments<Database = DB>,
    for<'q> Option<i64>: Encode<'q, DB> + Type<DB>,
    for<'q> Option<String>: Encode<'q, DB> + Type<DB>,
    for<'q> Option<Vec<u8>>: Encode<'q, DB> + Type<DB>,
{
    for value in values {
        query = match value {
            Value::Number(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Bytes(bytes) => query.bind(bytes),
        };
    }
    query
}

/// Decodes a row.
pub fn cells<R: Row>(row: &R, columns: &[Column]) -> sqlx::Result<Cells>
where
    usize: ColumnIndex<R>,
    for<'r> Option<i64>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<String>: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Option<Vec<u8>>: Decode<'r, R::Database> + Type<R::Database>,
{
    let decoded = columns.iter().enumerate().map(|(place, column)| {
        Ok(match column {
            Column::Number => Value::Number(row.try_get(place)?),
            Column::Text => Value::Text(row.try_get(place)?),
            Column::Bytes => Value::Bytes(row.try_get(place)?),
        })
    });
    Ok(Cells(decoded.collect::<sqlx::Result<Vec<_>>>()?.into_iter()))
}

/// A row, read from its first column to its last.
#[derive(Debug, Clone)]
pub struct Cells(std::vec::IntoIter<Value>);

impl Cells {
    pub fn number_or_null(&mut self) -> Result<Option<i64>> {
        match self.0.next() {
            Some(Value::Number(number)) => Ok(number),
            other => Err(unexpected("a number", other)),
        }
    }

    pub fn text_or_null(&mut self) -> Result<Option<String>> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            other => Err(unexpected("a text", other)),
        }
    }

    pub fn bytes_or_null(&mut self) -> Result<Option<Vec<u8>>> {
        match self.0.next() {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            other => Err(unexpected("bytes", other)),
        }
    }

    pub fn number(&mut self) -> Result<i64> {
        self.number_or_null()?.ok_or_else(|| unexpected("a number", None))
    }

    /// A number that is never negative.
    pub fn count(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.number()?).unwrap_or_default())
    }

    pub fn text(&mut self) -> Result<String> {
        self.text_or_null()?.ok_or_else(|| unexpected("a text", None))
    }
}

fn unexpected(expected: &str, found: Option<Value>) -> Error {
    Error::new(ErrorKind::Internal, format!("a row has {found:?} in place of {expected}; this is a bug"))
}
