//! Checks a mapping against the live table, and builds the statements from it.
//!
//! In SQLite, values have types and columns do not, so types are not checked: a blob is read as it is, and any other
//! value as the bytes of its text. Columns are always qualified with their table. SQLite takes an unknown quoted name
//! without one for a string, and a dropped column would become its own name in every row.

use landfall_core::{ColumnName, Error, ErrorKind, ImportOrder, Mapping, Result, Taken};

use crate::Sqlite;

pub(super) struct Table<'a> {
    mapping: &'a Mapping,
    columns: Vec<Column>,
}

struct Column {
    name: String,
    /// The declared type in upper case; may be empty.
    declared: String,
}

impl<'a> Table<'a> {
    pub(super) async fn inspect(database: &Sqlite, mapping: &'a Mapping) -> Result<Self> {
        let table = &mapping.table;
        if let Some(schema) = table.schema() {
            let sentence = format!("{table} names the schema {schema}, and SQLite has no schemas; leave it out");
            return Err(Error::new(ErrorKind::Unsupported, sentence));
        }
        let doing = "inspect the table to import";
        let found: Option<(String, bool)> =
            sqlx::query_as("SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?)")
                .bind(table.table())
                .fetch_optional(database.pool())
                .await
                .map_err(database.cannot(doing))?;
        match found {
            None => return Err(Error::new(ErrorKind::NotFound, format!("the table {table} to import does not exist"))),
            Some((kind, _)) if kind != "table" => {
                return Err(Error::invalid(format!("{table} is a {kind}, so its rows cannot be taken")));
            }
            Some((_, true)) => {
                let sentence = format!("{table} is WITHOUT ROWID, and rows are taken by their rowid");
                return Err(Error::new(ErrorKind::Unsupported, sentence));
            }
            Some(_) => {}
        }
        let columns: Vec<(String, String)> = sqlx::query_as("SELECT name, upper(type) FROM pragma_table_xinfo(?)")
            .bind(table.table())
            .fetch_all(database.pool())
            .await
            .map_err(database.cannot(doing))?;
        let columns = columns.into_iter().map(|(name, declared)| Column { name, declared }).collect();
        Ok(Self { mapping, columns })
    }

    fn column(&self, name: &ColumnName) -> Result<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name.as_str())).ok_or_else(|| {
            let known: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
            let (table, known) = (&self.mapping.table, known.join(", "));
            Error::invalid(format!("the table {table} has no column {name}; it has {known}"))
        })
    }

    /// With one writer at a time, rows are inserted in the order of commits, and rowids grow in that order.
    pub(super) fn order(&self) -> ImportOrder {
        let named: Vec<_> = self.mapping.order_by.iter().map(ColumnName::as_str).collect();
        ImportOrder::Known(if named.is_empty() { "rowid".into() } else { named.join(", ") })
    }

    pub(super) fn any(&self) -> Result<String> {
        Ok(format!(r#"SELECT EXISTS (SELECT 1 FROM "{}" AS t{})"#, self.mapping.table.table(), self.unmarked()?))
    }

    pub(super) fn read(&self) -> Result<String> {
        for name in self.mapping.columns() {
            self.column(name)?;
        }
        let Mapping { table, id, payload, .. } = self.mapping;
        let mut selected = format!(
            r#"t.rowid, typeof(t."{id}") = 'blob',
            CASE typeof(t."{id}") WHEN 'blob' THEN t."{id}" ELSE CAST(CAST(t."{id}" AS TEXT) AS BLOB) END,
            CASE typeof(t."{payload}") WHEN 'blob' THEN t."{payload}"
                 ELSE CAST(CAST(t."{payload}" AS TEXT) AS BLOB) END"#
        );
        for column in self.mapping.text_columns() {
            selected.push_str(&format!(r#", CAST(CAST(t."{column}" AS TEXT) AS BLOB)"#));
        }
        let order: String = self.mapping.order_by.iter().map(|column| format!(r#"t."{column}", "#)).collect();
        let (table, unmarked) = (table.table(), self.unmarked()?);
        Ok(format!(r#"SELECT {selected} FROM "{table}" AS t{unmarked} ORDER BY {order}t.rowid LIMIT ?"#))
    }

    pub(super) fn take(&self) -> Result<String> {
        let table = self.mapping.table.table();
        let given = "rowid IN (SELECT value FROM json_each(?))";
        Ok(match self.mark()? {
            None => format!(r#"DELETE FROM "{table}" WHERE {given}"#),
            Some((column, mark)) => format!(r#"UPDATE "{table}" SET "{}" = {} WHERE {given}"#, column.name, mark.set),
        })
    }

    /// Returns the `WHERE` clause for rows that are not marked as taken.
    fn unmarked(&self) -> Result<String> {
        Ok(match self.mark()? {
            None => String::new(),
            Some((column, mark)) => {
                format!(" WHERE {}", mark.is_unset.replace("{}", &format!(r#"t."{}""#, column.name)))
            }
        })
    }

    fn mark(&self) -> Result<Option<(&Column, MarkExpressions)>> {
        let Taken::Mark(name) = &self.mapping.taken else { return Ok(None) };
        let column = self.column(name)?;
        // SQLite stores booleans as integers.
        let is_number = ["INT", "BOOL"].iter().any(|kind| column.declared.contains(kind));
        let mark = if is_number {
            MarkExpressions { is_unset: "coalesce({}, 0) = 0", set: "1" }
        } else {
            MarkExpressions { is_unset: "{} IS NULL", set: "strftime('%Y-%m-%d %H:%M:%f', 'now')" }
        };
        Ok(Some((column, mark)))
    }
}

/// The SQL expressions that test and set the mark of a taken row.
struct MarkExpressions {
    is_unset: &'static str,
    set: &'static str,
}
