//! What the columns of somebody's own outbox mean.

use super::{ColumnName, TableName, TopicTemplate};
use crate::{Error, HeaderName, LeaseName, Result};

/// A table and what its columns mean. [`Mapping::debezium`] fits a table made for Debezium's outbox event router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub table: TableName,
    /// A UUID is the message's id as it is; of anything else a stable UUIDv5 is made.
    pub id: ColumnName,
    pub topic: TopicTemplate,
    /// The ordering key; null or empty means a message without one.
    pub key: Option<ColumnName>,
    /// What the message is; null means the default kind.
    pub kind: Option<ColumnName>,
    /// Bytes as they are; JSON and text in UTF-8. Null is an empty payload.
    pub payload: ColumnName,
    /// Further columns that travel as headers; null ones are left out.
    pub headers: Vec<HeaderColumn>,
    /// Which of two rows came first, the most important column first. Without any the database is asked for what it
    /// knows ([`ImportOrder`](super::ImportOrder)).
    pub order_by: Vec<ColumnName>,
    pub taken: Taken,
}

/// A column that becomes a header, under its own name or another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderColumn {
    pub column: ColumnName,
    pub header: HeaderName,
}

/// What becomes of a row that was moved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Taken {
    #[default]
    Delete,
    /// The row stays, and this column says that it was taken: a time or a text (null before), a boolean (null or false
    /// before) or a number (null or 0 before).
    Mark(ColumnName),
}

impl Mapping {
    /// The columns that Debezium documents as its defaults: `id`, `aggregatetype`, `aggregateid`, `type`, `payload`;
    /// the topic is `outbox.event.` and the aggregate's type.
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

    /// Whoever moves rows of this table holds this lease.
    pub fn lease_name(&self) -> LeaseName {
        LeaseName(format!("import/{}", self.table))
    }

    /// The columns that are read as text, each once; a [`ForeignRow`](super::ForeignRow) has their values in this order.
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

    /// Every column that must exist, each once.
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

    /// What no column can be asked about: refuses headers whose names are taken.
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

    /// `tenant` or `tenant_id:tenant`: the column, and the header's name where it is another one.
    fn from_str(text: &str) -> Result<Self> {
        let (column, header) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { column: ColumnName::new(column)?, header: HeaderName::new(header)? })
    }
}
