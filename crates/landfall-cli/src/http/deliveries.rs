//! `GET /v1/deliveries`: deliveries that failed and are attempted again.

use axum::Json;
use axum::extract::RawQuery;
use landfall::{DeliveryFilter, GroupName, Key, RetryingDelivery, TopicName};
use serde::Serialize;

use super::Shared;
use super::problem::Problem;

pub(super) const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

#[derive(Debug, Serialize)]
pub(super) struct Page {
    items: Vec<RetryingDelivery>,
}

pub(super) async fn list(
    axum::extract::State(state): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<Page>, Problem> {
    let (filter, limit) = parse(query.as_deref().unwrap_or_default())?;
    let items = state.deliveries.retrying(&filter, limit).await?;
    Ok(Json(Page { items }))
}

/// Returns the filter and the limit. Refuses parameters that are unknown, repeated or invalid.
fn parse(query: &str) -> Result<(DeliveryFilter, usize), Problem> {
    let (mut filter, mut limit) = (DeliveryFilter::default(), None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*name {
            "message_id" => filter.message_id.replace(value.parse()?).is_some(),
            "topic" => filter.topic.replace(TopicName::new(value)?).is_some(),
            "group" => filter.group.replace(GroupName::new(value)?).is_some(),
            "key" => filter.key.replace(Key::new(value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            _ => return Err(Problem::invalid(format!("the parameter {name:?} is unknown"))),
        };
        if is_repeated {
            return Err(Problem::invalid(format!("the parameter {name} is repeated")));
        }
    }
    Ok((filter, limit.unwrap_or(DEFAULT_LIMIT)))
}

pub(super) fn parse_limit(text: &str) -> Result<usize, Problem> {
    let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Problem::invalid(format!("limit must be a number from 1 to {MAX_LIMIT}, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_parsed() {
        let (filter, limit) = parse("topic=orders&group=mailer&key=k%201&limit=7").unwrap();
        assert_eq!(filter.topic.unwrap().as_str(), "orders");
        assert_eq!(filter.group.unwrap().as_str(), "mailer");
        assert_eq!((filter.key.unwrap().as_str(), filter.message_id, limit), ("k 1", None, 7));
        assert_eq!(parse("").unwrap().1, DEFAULT_LIMIT);
    }
}
