use landfall_core::{Message, MessageId, OutboxFilter};
use sqlx::query::Query;
use sqlx::{Database, Encode, QueryBuilder, Type};

/// Binds the nine columns of a message: `message_id, topic, key, sequence, kind, mode, headers, payload, created_at`.
/// `id` and `time` are in the types of their columns.
pub fn bind_message<'q, DB, I, T>(
    query: Query<'q, DB, DB::Arguments>,
    message: &'q Message,
    id: I,
    time: T,
) -> Query<'q, DB, DB::Arguments>
where
    DB: Database,
    DB::Arguments: sqlx::Arguments<Database = DB>,
    I: Encode<'q, DB> + Type<DB>,
    T: Encode<'q, DB> + Type<DB>,
    &'q str: Encode<'q, DB> + Type<DB>,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    String: Encode<'q, DB> + Type<DB>,
    &'q [u8]: Encode<'q, DB> + Type<DB>,
{
    query
        .bind(id)
        .bind(message.topic.as_str())
        .bind(message.key.as_ref().map(|key| key.as_str()))
        .bind(message.sequence)
        .bind(message.kind.as_str())
        .bind(message.mode.as_str())
        .bind(message.headers.to_json())
        .bind(&message.payload[..])
        .bind(time)
}

/// The columns that an [`OutboxFilter`] compares, as the statement names them.
#[derive(Debug, Clone, Copy)]
pub struct OutboxColumns {
    pub id: &'static str,
    pub message_id: &'static str,
    pub topic: &'static str,
    pub key: &'static str,
}

/// Appends a condition for every field of the filter that is set, except for its state. Values are bound.
pub fn push_outbox_filter<DB, I>(
    query: &mut QueryBuilder<DB>,
    filter: &OutboxFilter,
    columns: OutboxColumns,
    id: impl Fn(MessageId) -> I,
) where
    DB: Database,
    for<'q> I: Encode<'q, DB> + Type<DB>,
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    let OutboxFilter { state: _, message_id, topic, key, after } = filter;
    if let Some(message_id) = message_id {
        query.push(format_args!(" AND {} = ", columns.message_id)).push_bind(id(*message_id));
    }
    if let Some(topic) = topic {
        query.push(format_args!(" AND {} = ", columns.topic)).push_bind(topic.as_str().to_owned());
    }
    if let Some(key) = key {
        query.push(format_args!(" AND {} = ", columns.key)).push_bind(key.as_str().to_owned());
    }
    if let Some(after) = after {
        query.push(format_args!(" AND {} > ", columns.id)).push_bind(*after);
    }
}
