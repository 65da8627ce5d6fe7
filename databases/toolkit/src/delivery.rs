use landfall_core::{DeliveryFilter, GroupName, Key, MessageId, Result, RetryingDelivery, Timestamp, TopicName};
use sqlx::{Database, Encode, QueryBuilder, Type};

/// The columns of a retrying delivery: message id, topic, group, key, attempts, error code, error, and three times in
/// milliseconds (first failure, last and next attempt).
pub type DeliveryColumns = (String, String, String, Option<String>, i64, String, String, i64, i64, i64);

pub fn retrying_delivery(columns: DeliveryColumns) -> Result<RetryingDelivery> {
    let (message_id, topic, group, key, attempts, error_code, error, first_failed, last_attempt, next_attempt) =
        columns;
    Ok(RetryingDelivery {
        message_id: message_id.parse()?,
        topic: TopicName::new(topic)?,
        group: GroupName::new(group)?,
        key: key.map(Key::new).transpose()?,
        attempts: u32::try_from(attempts).unwrap_or_default(),
        error_code,
        error,
        first_failed: Timestamp::from_millis(first_failed),
        last_attempt: Timestamp::from_millis(last_attempt),
        next_attempt: Timestamp::from_millis(next_attempt),
    })
}

/// Builds the result of `retrying_counts` from topic, group and count.
pub fn delivery_counts(counts: Vec<(String, String, i64)>) -> Result<Vec<(TopicName, GroupName, u64)>> {
    let count = |(topic, group, count): (String, String, i64)| {
        Ok((TopicName::new(topic)?, GroupName::new(group)?, count.unsigned_abs()))
    };
    counts.into_iter().map(count).collect()
}

/// Builds the result of `admitted_by` from group and time in milliseconds.
pub fn admissions(rows: Vec<(String, i64)>) -> Result<Vec<(GroupName, Timestamp)>> {
    rows.into_iter().map(|(group, time)| Ok((GroupName::new(group)?, Timestamp::from_millis(time)))).collect()
}

/// Appends a condition for every field of the filter that is set, the order and the limit. Values are bound. `key` is
/// the column of the key as the server quotes it; `id` converts to the type of its column.
pub fn push_delivery_filter<DB, I>(
    query: &mut QueryBuilder<DB>,
    filter: &DeliveryFilter,
    limit: usize,
    key: &str,
    id: impl Fn(MessageId) -> I,
) where
    DB: Database,
    for<'q> I: Encode<'q, DB> + Type<DB>,
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    let DeliveryFilter { message_id, topic, group, key: name } = filter;
    if let Some(message_id) = message_id {
        query.push(" AND d.message_id = ").push_bind(id(*message_id));
    }
    let texts = [
        ("topic", topic.as_ref().map(|topic| topic.as_str())),
        ("consumer_group", group.as_ref().map(|group| group.as_str())),
        (key, name.as_ref().map(|name| name.as_str())),
    ];
    for (column, value) in texts {
        if let Some(value) = value {
            query.push(format_args!(" AND d.{column} = ")).push_bind(value.to_owned());
        }
    }
    query.push(" ORDER BY d.first_failed_at, d.message_id LIMIT ");
    query.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
}
