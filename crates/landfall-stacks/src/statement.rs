//! Shared by the drivers: the two statements, and messages as columns of plain types.

use landfall_core::{Limits, Message, Result, TablePrefix};

/// Rows per statement. The protocol limits a statement to one gigabyte, and a message may have one megabyte.
const ROWS_PER_STATEMENT: usize = 500;

/// The time is milliseconds since 1970, which a double represents exactly for the next 280,000 years.
const ONE: &str = "
    INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
    VALUES ($1::text::uuid, $2, $3, $4, $5, $6, $7::text::jsonb, $8,
            timestamptz 'epoch' + $9::bigint * interval '1 millisecond')";

/// Rows get their ids in the order of the arrays.
const MANY: &str = "
    INSERT INTO {p}outbox (message_id, topic, key, sequence, kind, mode, headers, payload, created_at)
    SELECT message_id::uuid, topic, key, sequence, kind, mode, headers::jsonb, payload,
           timestamptz 'epoch' + created_at * interval '1 millisecond'
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
                $9::bigint[]) WITH ORDINALITY
        AS given (message_id, topic, key, sequence, kind, mode, headers, payload, created_at, ordinal)
    ORDER BY ordinal";

/// The statements for one table prefix. The prefix, which is validated, is the only text inserted into SQL.
#[derive(Debug, Clone)]
pub(crate) struct Statements {
    pub(crate) one: String,
    pub(crate) many: String,
    pub(crate) channel: String,
    pub(crate) limits: Limits,
}

impl Statements {
    pub(crate) fn new(prefix: &TablePrefix) -> Self {
        let fill = |template: &str| template.replace("{p}", prefix.as_str());
        Self {
            one: fill(ONE),
            many: fill(MANY),
            channel: format!("{}outbox", prefix.bare()),
            limits: Limits::default(),
        }
    }

    /// Checks all messages before the first is sent, so that a refusal writes nothing.
    pub(crate) fn check(&self, messages: &[Message]) -> Result<()> {
        messages.iter().try_for_each(|message| self.limits.check(message))
    }
}

pub(crate) fn chunks(messages: &[Message]) -> impl Iterator<Item = Columns<'_>> {
    messages.chunks(ROWS_PER_STATEMENT).map(Columns::new)
}

/// The columns of several messages, as the arrays of [`Statements::many`].
pub(crate) struct Columns<'a> {
    pub(crate) ids: Vec<String>,
    pub(crate) topics: Vec<&'a str>,
    pub(crate) keys: Vec<Option<&'a str>>,
    pub(crate) sequences: Vec<Option<i64>>,
    pub(crate) kinds: Vec<&'a str>,
    pub(crate) modes: Vec<&'a str>,
    pub(crate) headers: Vec<String>,
    pub(crate) payloads: Vec<&'a [u8]>,
    pub(crate) times: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn new(messages: &'a [Message]) -> Self {
        fn column<'a, T>(messages: &'a [Message], value: impl Fn(&'a Message) -> T) -> Vec<T> {
            messages.iter().map(value).collect()
        }
        Self {
            ids: column(messages, |message| message.id.to_string()),
            topics: column(messages, |message| message.topic.as_str()),
            keys: column(messages, key),
            sequences: column(messages, |message| message.sequence),
            kinds: column(messages, |message| message.kind.as_str()),
            modes: column(messages, |message| message.mode.as_str()),
            headers: column(messages, |message| message.headers.to_json()),
            payloads: column(messages, |message| &message.payload[..]),
            times: column(messages, |message| message.time.as_millis()),
        }
    }
}

pub(crate) fn key(message: &Message) -> Option<&str> {
    message.key.as_ref().map(|key| key.as_str())
}
