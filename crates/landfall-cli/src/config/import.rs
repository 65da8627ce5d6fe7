//! `[[import]]`: existing outbox tables.

use std::str::FromStr;

use landfall::{Mapping, TableName, Taken};

use super::key::closest;
use super::value::{Problem, Value, type_of};

const FIELDS: [&str; 9] = ["table", "id", "topic", "key", "kind", "payload", "headers", "order_by", "mark"];

/// Reads `import`: one TOML table per outbox. Every field but `table` defaults to Debezium's column.
pub(super) fn read(value: &Value<'_>) -> Result<Vec<Mapping>, Problem> {
    let array = value.tables(r#"[[import]] and below it table = "NAME""#)?;
    let mut mappings: Vec<Mapping> = Vec::with_capacity(array.len());
    for (index, entry) in array.iter().enumerate() {
        let mapping = read_one(entry).map_err(|Problem(rest)| Problem(format!("[{index}]{rest}")))?;
        if mappings.iter().any(|other| other.table == mapping.table) {
            return Err(Problem(format!("[{index}] names the table {} a second time", mapping.table)));
        }
        mappings.push(mapping);
    }
    Ok(mappings)
}

fn read_one(entry: &toml::Value) -> Result<Mapping, Problem> {
    let toml::Value::Table(fields) = entry else {
        return Err(Problem(format!(" must be a table, not {}", type_of(entry))));
    };
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let meant = closest(unknown, FIELDS.into_iter(), |known| strsim::jaro_winkler(unknown, known));
        let hint = meant.map_or(format!(" it has {}", FIELDS.join(", ")), |name| format!(" did you mean {name:?}?"));
        return Err(Problem(format!(" has the unknown key {unknown:?};{hint}")));
    }
    let table: TableName = text(fields, "table")?.ok_or_else(|| Problem(" needs a table".into()))?;
    let mut mapping = Mapping::debezium(table).map_err(refused)?;
    if let Some(column) = text(fields, "id")? {
        mapping.id = column;
    }
    if let Some(template) = text(fields, "topic")? {
        mapping.topic = template;
    }
    if let Some(column) = text(fields, "payload")? {
        mapping.payload = column;
    }
    mapping.key = optional(fields, "key", mapping.key)?;
    mapping.kind = optional(fields, "kind", mapping.kind)?;
    mapping.headers = list(fields, "headers")?;
    mapping.order_by = list(fields, "order_by")?;
    mapping.taken = optional(fields, "mark", None)?.map_or(Taken::Delete, Taken::Mark);
    mapping.check().map_err(refused)?;
    Ok(mapping)
}

fn text<T: FromStr<Err = landfall::Error>>(fields: &toml::Table, name: &str) -> Result<Option<T>, Problem> {
    match fields.get(name) {
        None => Ok(None),
        Some(toml::Value::String(text)) => parsed(name, text).map(Some),
        Some(other) => Err(Problem(format!(".{name} must be a string, not {}", type_of(other)))),
    }
}

/// Reads an optional field; an empty string means none.
fn optional<T: FromStr<Err = landfall::Error>>(
    fields: &toml::Table,
    name: &str,
    default: Option<T>,
) -> Result<Option<T>, Problem> {
    match fields.get(name) {
        None => Ok(default),
        Some(toml::Value::String(text)) if text.is_empty() => Ok(None),
        Some(_) => text(fields, name),
    }
}

fn list<T: FromStr<Err = landfall::Error>>(fields: &toml::Table, name: &str) -> Result<Vec<T>, Problem> {
    let wrong = |other: &toml::Value| Problem(format!(".{name} must be an array of strings, not {}", type_of(other)));
    match fields.get(name) {
        None => Ok(Vec::new()),
        // A single column needs no array.
        Some(toml::Value::String(text)) => parsed(name, text).map(|one| vec![one]),
        Some(toml::Value::Array(items)) => {
            let item = |item: &toml::Value| parsed(name, item.as_str().ok_or_else(|| wrong(item))?);
            items.iter().map(item).collect()
        }
        Some(other) => Err(wrong(other)),
    }
}

fn parsed<T: FromStr<Err = landfall::Error>>(name: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| Problem(format!(".{name}: {error}")))
}

fn refused(error: landfall::Error) -> Problem {
    Problem(format!(": {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::Environment;
    use super::super::value::Given;
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Mapping>, String> {
        let document: toml::Table = toml::from_str(text).unwrap();
        let given = Given::Toml(document["import"].clone());
        read(&Value { given: &given, environment: &Environment::new([]) }).map_err(|Problem(rest)| rest)
    }

    #[test]
    fn table_name_alone_uses_debezium_defaults() {
        let mappings = read_text("[[import]]\ntable = \"outbox\"").unwrap();
        assert_eq!(mappings, [Mapping::debezium(TableName::new("outbox").unwrap()).unwrap()]);
    }

    #[test]
    fn every_import_field_is_read() {
        let text = r#"
            [[import]]
            table = "shop.events"
            id = "event_id"
            topic = "{stream}.v1"
            key = "customer"
            kind = ""
            payload = "body"
            headers = ["tenant", "trace_id:traceparent"]
            order_by = "position"
            mark = "processed_at"
            [[import]]
            table = "outbox"
        "#;
        let mappings = read_text(text).unwrap();
        let first = &mappings[0];
        assert_eq!((first.table.to_string(), first.id.as_str()), ("shop.events".into(), "event_id"));
        assert_eq!((first.topic.to_string(), &first.kind), ("{stream}.v1".into(), &None));
        assert_eq!(first.headers[1].header.as_str(), "traceparent");
        assert_eq!(first.order_by[0].as_str(), "position");
        assert!(matches!(&first.taken, Taken::Mark(column) if column.as_str() == "processed_at"));
        assert_eq!(mappings.len(), 2);
    }

    #[test]
    fn import_errors_name_the_entry_and_field() {
        for (text, expected) in [
            ("[[import]]\nid = \"a\"", "[0] needs a table"),
            ("[[import]]\ntabel = \"a\"", "[0] has the unknown key \"tabel\"; did you mean \"table\"?"),
            ("[[import]]\ntable = 5", "[0].table must be a string, not an integer"),
            ("[[import]]\ntable = \"a;--\"", "[0].table: table \"a;--\" must be a letter"),
            ("[[import]]\ntable = \"a\"\norder_by = [1]", "[0].order_by must be an array of strings, not an integer"),
            ("[[import]]\ntable = \"a\"\ntopic = \"{\"", "[0].topic: topic template \"{\" has a { without a }"),
            ("[[import]]\ntable = \"a\"\n[[import]]\ntable = \"a\"", "[1] names the table a a second time"),
            ("[[import]]\ntable = \"a\"\nheaders = \"a:ce_id\"", "[0]: column a of a cannot be that header"),
            ("import = 1", " must be given as [[import]]"),
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
