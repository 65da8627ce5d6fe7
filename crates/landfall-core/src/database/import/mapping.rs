//! The mapping of an existing outbox table's columns.

use super::{ColumnName, TableName, TopicTemplate};
use crate::adapter::LeaseName;
use crate::{Error, HeaderName, Result};

/// A table and the meaning of its columns. [`Mapping::debezium`] fits Debezium's outbox event router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub table: TableName,
    /// A UUID becomes the message id; any other value is hashed into a stable UUIDv5.
    pub id: ColumnName,
    pub topic: TopicTemplate,
    /// The ordering key; null or empty means a message without one.
    pub key: Option<ColumnName>,
    /// The event type; null means the default kind.
    pub kind: Option<ColumnName>,
    /// Bytes unchanged; JSON and text as UTF-8. Null is an empty payload.
    pub payload: ColumnName,
    /// Further columns that become headers; null values are omitted.
    pub headers: Vec<HeaderColumn>,
    /// The columns that order the rows, most significant first. If empty, the database determines the order
    /// ([`ImportOrder`](super::ImportOrder)).
    pub order_by: Vec<ColumnName>,
    pub taken: Taken,
}

/// A column that becomes a header, under its own name or another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderColumn {
    pub column: ColumnName,
    pub header: HeaderName,
}

/// What happens to a moved row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Taken {
    #[default]
    Delete,
    /// The row stays, and this column marks it as moved: a time or text (null before), a boolean (null or false before)
    /// or a number (null or 0 before).
    Mark(ColumnName),
}

impl Mapping {
    /// Returns the mapping of Debezium's default columns: `id`, `aggregatetype`, `aggregateid`, `type`, `payload`. The
    /// topic is `outbox.event.` and the aggregate's type.
    pub fn debezium(table: TableName) -> Result<Self> {
        Ok(Self {
            table,
            id: ColumnName::new("id")?,
            topic: TopicTemplate::new("outbox.event.{aggregatetype}")?,
            key: Some(ColumnName::new("aggregateid")?),
            kind: Some(ColumnName::new("type")?),
            payload: ColumnName::new("payload")?,
            headers: Vec::new(),
            order_by: Vec::new(),
            taken: Taken::Delete,
        })
    }

    /// Returns the lease that an importer of this table holds.
    pub fn lease_name(&self) -> LeaseName {
        LeaseName(format!("import/{}", self.table))
    }

    /// Returns the columns read as text, each once, in the order of [`ForeignRow::values`](super::ForeignRow).
    pub fn text_columns(&self) -> Vec<&ColumnName> {
        let all = self.topic.columns().chain(&self.key).chain(&self.kind).chain(self.headers.iter().map(|h| &h.column));
        let mut columns: Vec<&ColumnName> = Vec::new();
        for column in all {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// Returns every column that must exist, each once.
    pub fn columns(&self) -> Vec<&ColumnName> {
        let mut columns = self.text_columns();
        let mark = match &self.taken {
            Taken::Delete => None,
            Taken::Mark(column) => Some(column),
        };
        for column in [&self.id, &self.payload].into_iter().chain(&self.order_by).chain(mark) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// Refuses reserved header names; needs no database.
    pub fn check(&self) -> Result<()> {
        for HeaderColumn { column, header } in &self.headers {
            crate::Headers::default().insert(header.as_str(), "").map_err(|error| {
                Error::invalid(format!("column {column} of {} cannot be that header", self.table)).with_source(error)
            })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for HeaderColumn {
    type Err = Error;

    /// Parses `tenant` or `tenant_id:tenant`: the column, and the header's name if it differs.
    fn from_str(text: &str) -> Result<Self> {
        let (column, header) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { column: ColumnName::new(column)?, header: HeaderName::new(header)? })
    }
}
