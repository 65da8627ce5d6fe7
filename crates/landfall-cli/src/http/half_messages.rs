//! `/v1/half-messages`: prepare a message, decide about it, and list what is undecided.
//!
//! A prepared message is durable before the response and invisible to consumers. Every call may be repeated.

use axum::Json;
use axum::extract::{Path, RawQuery, Request};
use axum::http::StatusCode;
use landfall::half::{HalfCoordinator, StoredCoordinator};
use landfall::{
    Decided, HalfMessage, HalfMessageFilter, HalfMessageRow, HalfState, HalfVerdict, MessageId, Prepared, Timestamp,
    TopicName,
};
use serde::Serialize;

use super::deliveries::{DEFAULT_LIMIT, parse_limit};
use super::problem::Problem;
use super::{Shared, State, body, idempotency, messages};
use crate::check_back::request::Fields;

#[derive(Debug, Serialize)]
pub(super) struct Decision {
    pub(super) id: MessageId,
    pub(super) state: HalfState,
    /// Whether this call stored or decided. Senders over gRPC use it; over HTTP a repeated call has the same answer.
    #[serde(skip)]
    pub(super) fresh: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Page {
    items: Vec<HalfMessageRow>,
    /// The value of `before` for the next page.
    next: Option<String>,
}

pub(super) async fn prepare(
    axum::extract::State(state): Shared,
    request: Request,
) -> Result<(StatusCode, Json<Decision>), Problem> {
    let (head, body) = request.into_parts();
    let body = body::read(body, messages::body_limit(&state.limits), state.request_timeout).await?;
    let fields = Fields::parse(&body).and_then(Fields::without_action).map_err(Problem::invalid)?;
    let given = fields.given_id().map_err(Problem::invalid)?;
    let id = idempotency::message_id(given.as_deref(), &head.headers)?;
    let mut half = fields.half_message(state.immunity).map_err(Problem::invalid)?;
    // A service may send several messages about one business id, so that pair is no identity here.
    half.message.id = id.unwrap_or_else(MessageId::new);
    Ok((StatusCode::CREATED, Json(store(&state, half).await?)))
}

/// Prepares a valid half message. The calls of HTTP and gRPC end here.
pub(super) async fn store(state: &State, half: HalfMessage) -> Result<Decision, Problem> {
    check_size(state, &half)?;
    let id = half.message.id;
    let coordinator = StoredCoordinator::new(state.half.clone());
    // In a separate task: a client that disconnects must not cancel a statement half-way, which desyncs some drivers.
    match join(tokio::spawn(async move { coordinator.prepare(&half).await }).await)? {
        Prepared::Fresh(state) => Ok(Decision { id, state, fresh: true }),
        Prepared::Repeated(state) => Ok(Decision { id, state, fresh: false }),
        Prepared::Conflict => Err(Problem::different_message(id)),
    }
}

fn check_size(state: &State, half: &HalfMessage) -> Result<(), Problem> {
    match half.check(&state.limits) {
        Ok(()) => Ok(()),
        Err(error) if half.message.payload.len() > state.limits.payload_bytes => {
            Err(Problem::too_large(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn commit(
    axum::extract::State(state): Shared,
    Path(id): Path<String>,
) -> Result<Json<Decision>, Problem> {
    decide(&state, &id, HalfVerdict::Committed).await.map(Json)
}

pub(super) async fn rollback(
    axum::extract::State(state): Shared,
    Path(id): Path<String>,
) -> Result<Json<Decision>, Problem> {
    decide(&state, &id, HalfVerdict::RolledBack).await.map(Json)
}

/// Decides about the id that a prepare returned. The calls of HTTP and gRPC end here.
pub(super) async fn decide(state: &State, id: &str, verdict: HalfVerdict) -> Result<Decision, Problem> {
    let id = path_id(id)?;
    let coordinator = StoredCoordinator::new(state.half.clone());
    match join(tokio::spawn(async move { coordinator.decide(id, verdict).await }).await)? {
        Decided::Now | Decided::Early => Ok(Decision { id, state: verdict.state(), fresh: true }),
        Decided::Before => Ok(Decision { id, state: verdict.state(), fresh: false }),
        Decided::Contradiction(first) => Err(Problem::other_verdict(id, first.state())),
    }
}

/// Parses the id that a prepare returned. Only a UUID: a misspelt id must be no early decision about another message.
fn path_id(text: &str) -> Result<MessageId, Problem> {
    Ok(text.parse()?)
}

fn join<T>(ended: Result<landfall::Result<T>, tokio::task::JoinError>) -> Result<T, Problem> {
    let ended = ended.map_err(|error| {
        landfall::Error::new(landfall::ErrorKind::Internal, "the half message was not stored").with_source(error)
    })?;
    Ok(ended?)
}

pub(super) async fn show(
    axum::extract::State(state): Shared,
    Path(id): Path<String>,
) -> Result<Json<HalfMessageRow>, Problem> {
    find(&state, &id).await.map(Json)
}

pub(super) async fn find(state: &State, id: &str) -> Result<HalfMessageRow, Problem> {
    let id = path_id(id)?;
    let filter = HalfMessageFilter { id: Some(id), ..HalfMessageFilter::default() };
    let found = state.half.find_half_messages(&filter, 1).await?.pop();
    found.ok_or_else(|| Problem::no_half_message(id))
}

pub(super) async fn list(
    axum::extract::State(state): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<Page>, Problem> {
    let (filter, limit) = parse(query.as_deref().unwrap_or_default())?;
    let items = state.half.find_half_messages(&filter, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|last| cursor(last.prepared_at, last.id));
    Ok(Json(Page { items, next }))
}

/// Returns the filter and the limit. Refuses parameters that are unknown, repeated or invalid.
fn parse(query: &str) -> Result<(HalfMessageFilter, usize), Problem> {
    let (mut filter, mut limit, mut contradicted) = (HalfMessageFilter::default(), None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*name {
            "state" => filter.state.replace(value.parse()?).is_some(),
            "topic" => filter.topic.replace(TopicName::new(value)?).is_some(),
            "business_type" => filter.business_type.replace(business(&name, &value)?).is_some(),
            "business_id" => filter.business_id.replace(business(&name, &value)?).is_some(),
            "contradicted" => contradicted.replace(parse_flag(&value)?).is_some(),
            "before" => filter.before.replace(parse_cursor(&value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            _ => return Err(Problem::invalid(format!("the parameter {name:?} is unknown"))),
        };
        if is_repeated {
            return Err(Problem::invalid(format!("the parameter {name} is repeated")));
        }
    }
    filter.contradicted = contradicted.unwrap_or_default();
    Ok((filter, limit.unwrap_or(DEFAULT_LIMIT)))
}

fn business(name: &str, value: &str) -> Result<String, Problem> {
    let is_valid = !value.is_empty()
        && value.chars().count() <= HalfMessage::MAX_BUSINESS_CHARACTERS
        && !value.chars().any(char::is_control);
    is_valid.then(|| value.to_owned()).ok_or_else(|| {
        let most = HalfMessage::MAX_BUSINESS_CHARACTERS;
        Problem::invalid(format!("{name} must have 1 to {most} characters without control characters"))
    })
}

fn parse_flag(text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| Problem::invalid(format!("contradicted must be true or false, not {text:?}")))
}

fn cursor(prepared_at: Timestamp, id: MessageId) -> String {
    format!("{}.{id}", prepared_at.as_millis())
}

fn parse_cursor(text: &str) -> Result<(Timestamp, MessageId), Problem> {
    let parts = text.split_once('.').and_then(|(millis, id)| Some((millis.parse().ok()?, id.parse().ok()?)));
    let (millis, id) = parts.ok_or_else(|| Problem::invalid("before must be the next of a previous page"))?;
    Ok((Timestamp::from_millis(millis), id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_parsed() {
        let id = MessageId::new();
        let next = cursor(Timestamp::from_millis(5), id);
        let query = format!(
            "state=parked&topic=orders&business_type=order&business_id=7&contradicted=true&limit=7&before={next}"
        );
        let (filter, limit) = parse(&query).unwrap();
        assert_eq!((filter.state, limit), (Some(HalfState::Parked), 7));
        assert_eq!(filter.topic.unwrap().as_str(), "orders");
        assert_eq!((filter.business_type.as_deref(), filter.business_id.as_deref()), (Some("order"), Some("7")));
        assert_eq!((filter.contradicted, filter.before), (true, Some((Timestamp::from_millis(5), id))));
        for wrong in ["state=x", "limit=0", "before=1", "contradicted=1", "business_id=", "x=1", "limit=1&limit=1"] {
            assert!(parse(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
