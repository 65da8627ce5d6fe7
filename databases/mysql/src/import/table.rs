//! Checks a mapping against the live table, and builds the statements from it.

use landfall_core::{ColumnName, Error, ErrorKind, ImportOrder, Mapping, Result, TableName, Taken};
use sqlx::AssertSqlSafe;

use crate::MySql;

pub(super) struct Table<'a> {
    mapping: &'a Mapping,
    columns: Vec<Column>,
    /// The unique index on only the id, quoted.
    index: String,
}

struct Column {
    name: String,
    /// The type without its length, in lower case.
    kind: String,
    is_unsigned: bool,
    is_auto_increment: bool,
    is_nullable: bool,
}

/// The type in which ids are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdType {
    Whole,
    Large,
    Text,
    Bytes,
}

const TEXTS: [&str; 7] = ["char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"];
const BINARIES: [&str; 6] = ["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"];
const WHOLES: [&str; 5] = ["tinyint", "smallint", "mediumint", "int", "bigint"];

impl<'a> Table<'a> {
    pub(super) async fn inspect(database: &MySql, mapping: &'a Mapping) -> Result<Self> {
        let table = &mapping.table;
        let doing = "inspect the table to import";
        let found: Option<String> = sqlx::query_scalar(
            "SELECT CAST(table_type AS CHAR) FROM information_schema.tables
             WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?",
        )
        .bind(table.schema())
        .bind(table.table())
        .fetch_optional(database.pool())
        .await
        .map_err(database.could_not(doing))?;
        match found.as_deref() {
            None => {
                let sentence = format!("the table {table} to import does not exist, or this user may not see it");
                return Err(Error::new(ErrorKind::NotFound, sentence));
            }
            Some("BASE TABLE") => {}
            Some(_) => return Err(Error::invalid(format!("{table} is not a table, so its rows cannot be taken"))),
        }
        let columns: Vec<(String, String, bool, bool, bool)> = sqlx::query_as(
            "SELECT CAST(column_name AS CHAR), LOWER(CAST(data_type AS CHAR)), column_type LIKE '%unsigned%',
                    extra LIKE '%auto_increment%', is_nullable = 'YES'
             FROM information_schema.columns
             WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
             ORDER BY ordinal_position",
        )
        .bind(table.schema())
        .bind(table.table())
        .fetch_all(database.pool())
        .await
        .map_err(database.could_not(doing))?;
        let column = |(name, kind, is_unsigned, is_auto_increment, is_nullable)| Column {
            name,
            kind,
            is_unsigned,
            is_auto_increment,
            is_nullable,
        };
        let columns = columns.into_iter().map(column).collect();
        let mut inspected = Self { mapping, columns, index: String::new() };
        for name in mapping.columns() {
            inspected.column(name)?;
        }
        inspected.index = inspected.index_of_id(database).await?;
        Ok(inspected)
    }

    /// Returns the unique index on only the id, which locks and removes single rows.
    async fn index_of_id(&self, database: &MySql) -> Result<String> {
        let Mapping { table, id, .. } = self.mapping;
        let index: Option<String> = sqlx::query_scalar(
            "SELECT CAST(index_name AS CHAR) FROM information_schema.statistics
             WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND non_unique = 0
             GROUP BY index_name HAVING COUNT(*) = 1 AND LOWER(MAX(column_name)) = LOWER(?) AND MAX(sub_part) IS NULL
             ORDER BY index_name = 'PRIMARY' DESC LIMIT 1",
        )
        .bind(table.schema())
        .bind(table.table())
        .bind(id.as_str())
        .fetch_optional(database.pool())
        .await
        .map_err(database.could_not("inspect the table to import"))?;
        match index {
            Some(index) if !self.column(id)?.is_nullable => Ok(format!("`{}`", index.replace('`', "``"))),
            _ => Err(Error::invalid(format!(
                "the column {id} of {table} must be NOT NULL and have a unique index of its own: rows are taken by it"
            ))),
        }
    }

    fn column(&self, name: &ColumnName) -> Result<&Column> {
        self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name.as_str())).ok_or_else(|| {
            let known: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
            let (table, known) = (&self.mapping.table, known.join(", "));
            Error::invalid(format!("the table {table} has no column {name}; it has {known}"))
        })
    }

    fn wrong_type(&self, column: &Column, what: &str) -> Error {
        let Column { name, kind, .. } = column;
        Error::invalid(format!("the column {name} of {} is {kind}, which cannot be {what}", self.mapping.table))
    }

    pub(super) fn id_type(&self) -> Result<IdType> {
        let id = self.column(&self.mapping.id)?;
        match id.kind.as_str() {
            "bigint" if id.is_unsigned => Ok(IdType::Large),
            kind if WHOLES.contains(&kind) => Ok(IdType::Whole),
            kind if TEXTS.contains(&kind) || kind == "uuid" => Ok(IdType::Text),
            kind if BINARIES.contains(&kind) => Ok(IdType::Bytes),
            _ => Err(self.wrong_type(id, "an id (a whole number, text, binary or uuid)")),
        }
    }

    fn counting(&self) -> Option<&Column> {
        self.columns.iter().find(|column| column.is_auto_increment)
    }

    pub(super) fn order(&self) -> ImportOrder {
        let given: Vec<_> = self.mapping.order_by.iter().map(ColumnName::as_str).collect();
        match (given.as_slice(), self.counting()) {
            ([], Some(column)) => ImportOrder::Known(column.name.clone()),
            ([], None) => ImportOrder::Guessed(
                "no column gives the order in which rows were written, so rows that are present together are imported \
                 in order of their ids; messages of one key may be out of order; name a column in order_by"
                    .into(),
            ),
            (given, _) => ImportOrder::Known(given.join(", ")),
        }
    }

    fn order_by(&self) -> String {
        let mut columns: Vec<&str> = self.mapping.order_by.iter().map(ColumnName::as_str).collect();
        if columns.is_empty() {
            columns.extend(self.counting().map(|column| column.name.as_str()));
        }
        let named: String = columns.iter().map(|name| format!("t.`{name}`, ")).collect();
        format!("{named}t.`{}`", self.mapping.id)
    }

    pub(super) fn any(&self) -> Result<String> {
        let (table, unmarked) = (quoted_table(&self.mapping.table), self.unmarked()?);
        Ok(format!("SELECT EXISTS (SELECT 1 FROM {table} t WHERE {unmarked})"))
    }

    pub(super) fn find(&self) -> Result<String> {
        let (table, unmarked, order) = (quoted_table(&self.mapping.table), self.unmarked()?, self.order_by());
        Ok(format!("SELECT {} FROM {table} t WHERE {unmarked} ORDER BY {order} LIMIT ?", self.id()?))
    }

    pub(super) fn read(&self) -> Result<String> {
        let (id, payload) = (self.column(&self.mapping.id)?, self.column(&self.mapping.payload)?);
        let kind = payload.kind.as_str();
        if !TEXTS.contains(&kind) && !BINARIES.contains(&kind) {
            return Err(self.wrong_type(payload, "a payload (JSON, text or binary)"));
        }
        let mut selected = format!("{}, {}, {}", self.id()?, bytes(id), bytes(payload));
        for name in self.mapping.text_columns() {
            let column = self.column(name)?;
            if BINARIES.contains(&column.kind.as_str()) {
                return Err(self.wrong_type(column, "text"));
            }
            selected.push_str(&format!(", {}", bytes(column)));
        }
        let (source, unmarked, order) = (self.source(), self.unmarked()?, self.order_by());
        let listed = self.listed();
        Ok(format!("SELECT {selected} FROM {source} WHERE {listed} AND {unmarked} ORDER BY {order} FOR UPDATE"))
    }

    pub(super) fn take(&self) -> Result<String> {
        let (source, listed) = (self.source(), self.listed());
        Ok(match self.mark()? {
            None => format!("DELETE t FROM {source} WHERE {listed}"),
            Some((column, mark)) => format!("UPDATE {source} SET t.`{}` = {} WHERE {listed}", column.name, mark.set),
        })
    }

    /// Runs a statement that needs the privileges to remove or mark rows, and changes none. The tables of grants are
    /// not readable for every user.
    pub(super) async fn check_privileges(&self, database: &MySql) -> Result<()> {
        let table = quoted_table(&self.mapping.table);
        let (statement, right) = match self.mark()? {
            None => (format!("DELETE FROM {table} WHERE FALSE"), "delete from"),
            Some((column, mark)) => {
                (format!("UPDATE {table} SET `{}` = {} WHERE FALSE", column.name, mark.set), "update")
            }
        };
        let tried = sqlx::query(AssertSqlSafe(statement)).execute(database.pool()).await;
        tried.map(drop).map_err(|error| {
            let sentence = format!("this user cannot {right} {}", self.mapping.table);
            match database.could_not("remove or mark imported rows")(error) {
                error if error.is_temporary() => error,
                error => Error::invalid(sentence).with_source(error),
            }
        })
    }

    /// Returns the table with the index of the id, which is used whatever the statistics are.
    fn source(&self) -> String {
        format!("{} t FORCE INDEX ({})", quoted_table(&self.mapping.table), self.index)
    }

    fn listed(&self) -> String {
        format!("t.`{}` IN ({{ids}})", self.mapping.id)
    }

    /// Returns the id in a type that the driver can read and bind.
    fn id(&self) -> Result<String> {
        let id = &self.mapping.id;
        Ok(match self.id_type()? {
            IdType::Whole => format!("CAST(t.`{id}` AS SIGNED)"),
            IdType::Large => format!("CAST(t.`{id}` AS UNSIGNED)"),
            IdType::Text => format!("CAST(t.`{id}` AS CHAR CHARACTER SET utf8mb4)"),
            IdType::Bytes => format!("CAST(t.`{id}` AS BINARY)"),
        })
    }

    /// Returns the condition for rows that are not marked as taken.
    fn unmarked(&self) -> Result<String> {
        Ok(match self.mark()? {
            None => "TRUE".into(),
            Some((column, mark)) => mark.is_unset.replace("{}", &format!("t.`{}`", column.name)),
        })
    }

    fn mark(&self) -> Result<Option<(&Column, MarkExpressions)>> {
        let Taken::Mark(name) = &self.mapping.taken else { return Ok(None) };
        let column = self.column(name)?;
        let mark = match column.kind.as_str() {
            "timestamp" | "datetime" | "date" | "char" | "varchar" | "text" if column.is_nullable => {
                MarkExpressions { is_unset: "{} IS NULL", set: "CURRENT_TIMESTAMP(6)" }
            }
            kind if WHOLES.contains(&kind) => MarkExpressions { is_unset: "COALESCE({}, 0) = 0", set: "1" },
            _ => return Err(self.wrong_type(column, "a mark (a time or a text that may be null, or a whole number)")),
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
    if BINARIES.contains(&kind.as_str()) {
        format!("CAST(t.`{name}` AS BINARY)")
    } else {
        format!("CAST(CAST(t.`{name}` AS CHAR CHARACTER SET utf8mb4) AS BINARY)")
    }
}

fn quoted_table(table: &TableName) -> String {
    match table.schema() {
        Some(schema) => format!("`{schema}`.`{}`", table.table()),
        None => format!("`{}`", table.table()),
    }
}
