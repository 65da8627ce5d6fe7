//! Conversion of a row of the user's table into an outbox row.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

use super::{ColumnName, Mapping};
use crate::message::REFUSED_HEADER;
use crate::{Error, Headers, Key, Kind, MessageId, Result, TopicName};

/// A row as the adapter read it.
#[derive(Debug, Clone)]
pub struct ForeignRow {
    /// The text as bytes, or the raw bytes if `id_is_binary`.
    pub id: Option<Vec<u8>>,
    pub id_is_binary: bool,
    pub payload: Option<Vec<u8>>,
    /// The values of [`Mapping::text_columns`], in that order. A value that is not UTF-8 makes the row invalid.
    pub values: Vec<Option<Vec<u8>>>,
}

/// The outbox row of a valid or invalid imported row. Other columns get their defaults; the time is that of the import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRow {
    pub message_id: MessageId,
    pub topic: TopicName,
    pub key: Option<Key>,
    pub kind: Kind,
    /// The JSON object.
    pub headers: String,
    pub payload: Bytes,
    /// Why the row is invalid. The headers contain it too, so the relay parks the row when it reads them.
    pub refused: Option<String>,
}

/// The topic of rows without a valid topic.
const UNKNOWN_TOPIC: &str = "landfall.import";

impl Mapping {
    /// Converts a row. Never fails: an invalid row becomes one that the relay parks.
    pub fn import_row(&self, row: ForeignRow) -> ImportedRow {
        let reader = Reader { columns: self.text_columns(), row: &row };
        let (topic, key, kind) = (self.topic_of(&reader), self.key_of(&reader), self.kind_of(&reader));
        let headers = self.headers_of(&reader);
        let message_id = self.id_of(&row);
        match (&topic, &key, &kind, &headers, &row.id) {
            (Ok(topic), Ok(key), Ok(kind), Ok(headers), Some(_)) => ImportedRow {
                message_id,
                topic: topic.clone(),
                key: key.clone(),
                kind: kind.clone(),
                headers: headers.to_json(),
                payload: row.payload.map(Bytes::from).unwrap_or_default(),
                refused: None,
            },
            _ => {
                let no_id = row.id.is_none().then(|| Error::invalid(format!("column {} is null", self.id)));
                let errors = [topic.as_ref().err(), key.as_ref().err(), kind.as_ref().err(), headers.as_ref().err()];
                let reasons: Vec<_> = errors.into_iter().flatten().chain(&no_id).map(Error::to_string).collect();
                let reason = format!("a row of {} is not a valid message: {}", self.table, reasons.join("; "));
                let marker = BTreeMap::from([(REFUSED_HEADER, &reason)]);
                // A key is held per topic, so without a topic there is nothing to hold.
                let key = key.ok().flatten().filter(|_| topic.is_ok());
                ImportedRow {
                    message_id,
                    topic: topic.unwrap_or_else(|_| unknown_topic()),
                    key,
                    kind: kind.unwrap_or_default(),
                    headers: serde_json::to_string(&marker).unwrap_or_default(),
                    payload: Bytes::from(self.contents(&row).to_string()),
                    refused: Some(reason),
                }
            }
        }
    }

    fn topic_of(&self, reader: &Reader<'_>) -> Result<TopicName> {
        TopicName::new(self.topic.fill(|column| reader.text(column))?)
    }

    fn key_of(&self, reader: &Reader<'_>) -> Result<Option<Key>> {
        let Some(column) = &self.key else { return Ok(None) };
        reader.text(column)?.filter(|text| !text.is_empty()).map(Key::new).transpose()
    }

    fn kind_of(&self, reader: &Reader<'_>) -> Result<Kind> {
        let Some(column) = &self.kind else { return Ok(Kind::default()) };
        reader.text(column)?.map_or_else(|| Ok(Kind::default()), Kind::new)
    }

    fn headers_of(&self, reader: &Reader<'_>) -> Result<Headers> {
        let mut headers = Headers::default();
        for header in &self.headers {
            if let Some(value) = reader.text(&header.column)? {
                headers.insert(header.header.as_str(), value)?;
            }
        }
        Ok(headers)
    }

    /// A UUID, as text or sixteen bytes, is the id. Any other value is hashed, deterministically:
    /// `uuid5(uuid5(NAMESPACE_URL, "landfall:import:" + table), id)`.
    fn id_of(&self, row: &ForeignRow) -> MessageId {
        let Some(id) = &row.id else { return MessageId::new() };
        let found = if row.id_is_binary {
            Uuid::from_slice(id).ok()
        } else {
            std::str::from_utf8(id).ok().and_then(|text| Uuid::parse_str(text.trim()).ok())
        };
        let made = || {
            let table = Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("landfall:import:{}", self.table).as_bytes());
            Uuid::new_v5(&table, id)
        };
        found.unwrap_or_else(made).into()
    }

    /// Returns the row as JSON: text where it is UTF-8, `{"hex": …}` otherwise.
    fn contents(&self, row: &ForeignRow) -> Value {
        let show = |bytes: &Option<Vec<u8>>| match bytes.as_deref().map(|bytes| (bytes, std::str::from_utf8(bytes))) {
            None => Value::Null,
            Some((_, Ok(text))) => Value::from(text),
            Some((bytes, Err(_))) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                serde_json::json!({ "hex": hex })
            }
        };
        let texts = self.text_columns().into_iter().zip(&row.values);
        let all = [(&self.id, &row.id), (&self.payload, &row.payload)].into_iter().chain(texts);
        Value::Object(all.map(|(column, bytes)| (column.as_str().to_owned(), show(bytes))).collect())
    }
}

struct Reader<'a> {
    columns: Vec<&'a ColumnName>,
    row: &'a ForeignRow,
}

impl<'a> Reader<'a> {
    fn text(&self, column: &ColumnName) -> Result<Option<&'a str>> {
        let index = self.columns.iter().position(|known| *known == column);
        let bytes = index.and_then(|index| self.row.values.get(index)).and_then(Option::as_deref);
        bytes
            .map(|bytes| {
                std::str::from_utf8(bytes)
                    .map_err(|error| Error::invalid(format!("column {column} is not UTF-8")).with_source(error))
            })
            .transpose()
    }
}

#[allow(clippy::expect_used, reason = "a constant, and a test reads it")]
fn unknown_topic() -> TopicName {
    TopicName::new(UNKNOWN_TOPIC).expect("a valid name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::import::{HeaderColumn, TableName};

    fn mapping() -> Mapping {
        let mut mapping = Mapping::debezium(TableName::new("outbox").unwrap()).unwrap();
        mapping.headers = ["tenant", "trace_id:traceparent"].map(|text| text.parse::<HeaderColumn>().unwrap()).to_vec();
        mapping
    }

    /// The columns as text: id, payload, aggregatetype, aggregateid, type, tenant, trace_id.
    fn row(columns: [Option<&str>; 7]) -> ForeignRow {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let [id, payload, values @ ..] = columns;
        ForeignRow { id: bytes(id), id_is_binary: false, payload: bytes(payload), values: values.map(bytes).to_vec() }
    }

    const ID: &str = "018f3d2e-0000-7000-8000-000000000001";

    #[test]
    fn debeziums_columns_are_a_message() {
        let columns = [Some(ID), Some("{}"), Some("Order"), Some("42"), Some("OrderPlaced"), Some("eu"), None];
        let moved = mapping().import_row(row(columns));
        assert_eq!(moved.refused, None);
        assert_eq!(moved.message_id.to_string(), ID);
        assert_eq!(moved.topic.as_str(), "outbox.event.Order");
        assert_eq!(moved.key, Some(Key::new("42").unwrap()));
        assert_eq!(moved.kind.as_str(), "OrderPlaced");
        assert_eq!(moved.headers, r#"{"tenant":"eu"}"#);
        assert_eq!(&moved.payload[..], b"{}");
    }

    #[test]
    fn null_columns_are_omitted() {
        let moved = mapping().import_row(row([Some(ID), None, Some("Order"), None, None, None, Some("00-1")]));
        assert_eq!((moved.refused, moved.key), (None, None));
        assert_eq!((moved.kind.as_str(), moved.payload.len()), ("message", 0));
        assert_eq!(moved.headers, r#"{"traceparent":"00-1"}"#);
    }

    #[test]
    fn id_that_is_not_a_uuid_is_hashed_reproducibly() {
        let id_of = |bytes: &[u8], is_binary| {
            let mut row = row([None, None, Some("Order"), None, None, None, None]);
            (row.id, row.id_is_binary) = (Some(bytes.to_vec()), is_binary);
            mapping().import_row(row).message_id.to_string()
        };
        // Python: uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "landfall:import:outbox"), "17")
        assert_eq!(id_of(b"17", false), "5945a7e3-1024-5361-ad55-bea5abb5b8de");
        assert_ne!(id_of(b"17", false), id_of(b"18", false));
        let bytes = *Uuid::parse_str("f18f3d2e-0000-7000-8000-0000000000ff").unwrap().as_bytes();
        assert_eq!(id_of(&bytes, true), "f18f3d2e-0000-7000-8000-0000000000ff");
        // Sixteen characters of text are not a UUID.
        assert_ne!(id_of(b"abcdefghijklmnop", false), Uuid::from_slice(b"abcdefghijklmnop").unwrap().to_string());
    }

    #[test]
    fn invalid_row_is_parked_with_reason_and_contents() {
        let bad = [
            ([Some(ID), Some("x"), None, Some("42"), None, None, None], "column aggregatetype is null"),
            ([Some(ID), Some("x"), Some("a b"), Some("42"), None, None, None], "topic \"outbox.event.a b\""),
            ([Some(ID), Some("x"), Some("Order"), Some("4\n2"), None, None, None], "key \"4\\n2\""),
            ([Some(ID), Some("x"), Some("Order"), Some("42"), Some(""), None, None], "kind \"\""),
            ([Some(ID), Some("x"), Some("Order"), Some("42"), None, Some("a\r\n"), None], "header tenant"),
            ([None, Some("x"), Some("Order"), Some("42"), None, None, None], "column id is null"),
        ];
        for (columns, reason) in bad {
            let moved = mapping().import_row(row(columns));
            let told = moved.refused.clone().unwrap();
            assert!(told.contains(reason), "{told}");
            // The relay gets the same reason when it reads the row.
            assert_eq!(Headers::from_json(&moved.headers).unwrap_err().to_string(), told);
            let contents: Value = serde_json::from_slice(&moved.payload).unwrap();
            assert_eq!(contents["payload"], "x");
            assert_eq!(contents["aggregatetype"], columns[2].map_or(Value::Null, Value::from));
            // The key is held if its topic is valid.
            let holds = moved.topic.as_str() == "outbox.event.Order" && columns[3] == Some("42");
            assert_eq!(moved.key.is_some(), holds, "{told}");
        }
        let mut not_text = row([Some(ID), None, None, None, None, None, None]);
        not_text.values[0] = Some(vec![0xff]);
        not_text.payload = Some(vec![0, 0xfe]);
        let moved = mapping().import_row(not_text);
        assert!(moved.refused.unwrap().contains("column aggregatetype is not UTF-8"));
        let contents: Value = serde_json::from_slice(&moved.payload).unwrap();
        assert_eq!(contents["payload"]["hex"], "00fe");
    }

    #[test]
    fn reserved_header_is_refused_by_check() {
        assert!(mapping().check().is_ok());
        let mut wrong = mapping();
        wrong.headers.push("tenant:landfall-attempts".parse().unwrap());
        assert!(wrong.check().is_err());
    }
}
