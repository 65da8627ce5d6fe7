//! Checks a mapping against the live table, and builds the statements from it.

use landfall_core::{ColumnName, Error, ErrorKind, ImportOrder, Mapping, Result, TableName, Taken};

use crate::Postgres;

/// The best order without a column for it: by the start of the writing transaction, by its statements, by location.
const WRITTEN: &str = "age(t.xmin) DESC, t.cmin::text::bigint, t.ctid";

/// A column of the live table.
struct Column {
    name: String,
    /// The type; for a domain, its base type.
    kind: String,
    /// Whether it is an identity or serial column.
    is_serial: bool,
    may_update: bool,
    is_nullable: bool,
}

/// A mapping and the columns of its live table.
pub(super) struct Table<'a> {
    mapping: &'a Mapping,
    columns: Vec<Column>,
}

impl<'a> Table<'a> {
    /// Reads the live table's columns, and checks its kind and privileges.
    pub(super) async fn inspect(database: &Postgres, mapping: &'a Mapping) -> Result<Self> {
        let table = &mapping.table;
        let doing = "inspect the table to import";
        let mut session = database.session().await?;
        let found: Option<(String, bool, bool)> = sqlx::query_as(
            "SELECT relkind::text, has_table_privilege(oid, 'SELECT'), has_table_privilege(oid, 'DELETE')
             FROM pg_class WHERE oid = to_regclass($1)",
        )
        .bind(quoted_table(table))
        .persistent(database.may_prepare())
        .fetch_optional(session.connection())
        .await
        .map_err(database.could_not(doing))?;
        let Some((kind, may_read, may_delete)) = found else {
            return Err(Error::new(ErrorKind::NotFound, format!("the table {table} to import does not exist")));
        };
        if !matches!(kind.as_str(), "r" | "p") {
            return Err(Error::invalid(format!("{table} is not a table, so its rows cannot be taken")));
        }
        if !may_read {
            return Err(Error::invalid(format!("this user may not read {table}; grant SELECT on it")));
        }
        if mapping.taken == Taken::Delete && !may_delete {
            return Err(Error::invalid(format!(
                "this user may not delete from {table}; grant DELETE on it, or name a column to mark"
            )));
        }
        let columns: Vec<(String, String, bool, bool, bool)> = sqlx::query_as(
            "SELECT a.attname::text, format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL),
                    a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%', false),
                    has_column_privilege(a.attrelid, a.attnum, 'UPDATE'), NOT a.attnotnull
             FROM pg_attribute a
             JOIN pg_type t ON t.oid = a.atttypid
             LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
             WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
             ORDER BY a.attnum",
        )
        .bind(quoted_table(table))
        .persistent(database.may_prepare())
        .fetch_all(session.connection())
        .await
        .map_err(database.could_not(doing))?;
        session.finish().await.map_err(database.could_not(doing))?;
        let column = |(name, kind, is_serial, may_update, is_nullable)| Column {
            name,
            kind,
            is_serial,
            may_update,
            is_nullable,
        };
        Ok(Self { mapping, columns: columns.into_iter().map(column).collect() })
    }

    fn column(&self, name: &ColumnName) -> Result<&Column> {
        self.columns.iter().find(|column| column.name == name.as_str()).ok_or_else(|| {
            let known: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
            let (table, known) = (&self.mapping.table, known.join(", "));
            Error::invalid(format!("the table {table} has no column {name}; it has {known}"))
        })
    }

    pub(super) fn is_binary(&self, name: &ColumnName) -> Result<bool> {
        Ok(self.column(name)?.kind == "bytea")
    }

    fn wrong_type(&self, column: &Column, what: &str) -> Error {
        let Column { name, kind, .. } = column;
        Error::invalid(format!("the column {name} of {} is {kind}, which cannot be {what}", self.mapping.table))
    }

    pub(super) fn order(&self) -> ImportOrder {
        let given = &self.mapping.order_by;
        if !given.is_empty() {
            let names: Vec<_> = given.iter().map(ColumnName::as_str).collect();
            return ImportOrder::Known(names.join(", "));
        }
        match self.columns.iter().find(|column| column.is_serial) {
            Some(column) => ImportOrder::Known(column.name.clone()),
            None => ImportOrder::Guessed(
                "no column gives the order in which rows were written, so they are imported in the order in which \
                 their transactions began to write; messages of one key that are present together may be out of \
                 order; name a column in order_by"
                    .into(),
            ),
        }
    }

    fn order_by(&self) -> String {
        let counted = self.columns.iter().find(|column| column.is_serial).map(|column| column.name.as_str());
        let mut columns: Vec<&str> = self.mapping.order_by.iter().map(ColumnName::as_str).collect();
        if columns.is_empty() {
            columns.extend(counted);
        }
        let named: String = columns.iter().map(|name| format!(r#"t."{name}", "#)).collect();
        format!("{named}{WRITTEN}")
    }

    pub(super) fn any(&self) -> Result<String> {
        Ok(format!("SELECT EXISTS (SELECT 1 FROM {} t{})", quoted_table(&self.mapping.table), self.unmarked()?))
    }

    pub(super) fn read(&self) -> Result<String> {
        for name in self.mapping.columns() {
            self.column(name)?;
        }
        let (id, payload) = (self.column(&self.mapping.id)?, self.column(&self.mapping.payload)?);
        let is_payload = ["bytea", "json", "jsonb", "text", "character varying", "character", "xml"];
        if !is_payload.contains(&payload.kind.as_str()) {
            return Err(self.wrong_type(payload, "a payload (bytea, json, jsonb, text or varchar)"));
        }
        let mut selected = format!("t.tableoid::bigint, t.ctid::text, {}, {}", bytes(id), bytes(payload));
        for name in self.mapping.text_columns() {
            let column = self.column(name)?;
            if column.kind == "bytea" {
                return Err(self.wrong_type(column, "text"));
            }
            selected.push_str(&format!(r#", t."{name}"::text"#));
        }
        let (table, unmarked, order) = (quoted_table(&self.mapping.table), self.unmarked()?, self.order_by());
        Ok(format!("SELECT {selected} FROM {table} t{unmarked} ORDER BY {order} LIMIT $1"))
    }

    pub(super) fn take(&self) -> Result<String> {
        let table = quoted_table(&self.mapping.table);
        let given = "unnest($1::bigint[], $2::text[]) AS given (part, place)";
        let is_given = "t.tableoid = given.part::oid AND t.ctid = given.place::tid";
        Ok(match self.mark()? {
            None => format!("DELETE FROM {table} t USING {given} WHERE {is_given}"),
            Some((column, mark)) => {
                format!(r#"UPDATE {table} t SET "{}" = {} FROM {given} WHERE {is_given}"#, column.name, mark.set)
            }
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
        if !column.may_update {
            let table = &self.mapping.table;
            return Err(Error::invalid(format!("this user may not update {name} of {table}; grant UPDATE on it")));
        }
        let mark = match column.kind.as_str() {
            "timestamp with time zone" | "timestamp without time zone" | "date" if column.is_nullable => {
                MarkExpressions { is_unset: "{} IS NULL", set: "now()" }
            }
            "text" | "character varying" if column.is_nullable => {
                MarkExpressions { is_unset: "{} IS NULL", set: "now()::text" }
            }
            "boolean" => MarkExpressions { is_unset: "{} IS NOT TRUE", set: "true" },
            "smallint" | "integer" | "bigint" => MarkExpressions { is_unset: "coalesce({}, 0) = 0", set: "1" },
            _ => {
                return Err(
                    self.wrong_type(column, "a mark (a time or a text that may be null, a boolean or a whole number)")
                );
            }
        };
        Ok(Some((column, mark)))
    }
}

/// The SQL expressions that test and set the mark of a taken row.
struct MarkExpressions {
    is_unset: &'static str,
    set: &'static str,
}

/// Returns a column as bytes: binary as it is, others as UTF-8 text.
fn bytes(column: &Column) -> String {
    let Column { name, kind, .. } = column;
    if kind == "bytea" { format!(r#"t."{name}""#) } else { format!(r#"convert_to(t."{name}"::text, 'UTF8')"#) }
}

fn quoted_table(table: &TableName) -> String {
    match table.schema() {
        Some(schema) => format!(r#""{schema}"."{}""#, table.table()),
        None => format!(r#""{}""#, table.table()),
    }
}
