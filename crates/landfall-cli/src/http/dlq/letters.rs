//! `GET /v1/dead-letters`, one letter with its history, and groups.

use axum::extract::{Path, RawQuery};
use axum::{Extension, Json};
use landfall::{AtLeast, AuditEntry, AuditFilter, DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterId};
use serde::Serialize;

use super::filter::{Conditions, repeated, unknown};
use super::letter_id;
use crate::config::Role;
use crate::http::Shared;
use crate::http::auth::Caller;
use crate::http::deliveries::{DEFAULT_LIMIT, parse_limit};
use crate::http::problem::Problem;
use crate::payload::Payload;

/// Letters are counted up to this many.
pub(in crate::http) const MAX_COUNT: u64 = 10_000;

/// The most rows of a letter's history.
pub(in crate::http) const MAX_HISTORY: usize = 1000;

#[derive(Debug, Serialize)]
pub(in crate::http) struct Page {
    items: Vec<DeadLetter>,
    /// The value of `after` for the next page.
    next: Option<DeadLetterId>,
    /// How many match, on the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<AtLeast>,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Detail {
    #[serde(flatten)]
    letter: DeadLetter,
    #[serde(flatten)]
    payload: Option<Payload>,
    /// The payload before it was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Payload>,
    history: Vec<AuditEntry>,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Groups {
    items: Vec<DeadLetterGroup>,
}

pub(in crate::http) async fn list(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page>, Problem> {
    let (filter, limit) = parse(query.as_deref().unwrap_or_default(), &caller)?;
    let items = state.dead_letters.list_letters(&filter, limit).await?;
    let matched = match filter.after {
        None => Some(state.dead_letters.count_letters(&filter, MAX_COUNT).await?),
        Some(_) => None,
    };
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.id);
    let items = items.into_iter().map(|letter| visible(letter, &caller)).collect();
    Ok(Json(Page { items, next, matched }))
}

pub(in crate::http) async fn groups(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<Groups>, Problem> {
    let (filter, limit) = parse(query.as_deref().unwrap_or_default(), &caller)?;
    if filter.after.is_some() {
        return Err(unknown("after"));
    }
    // Without a status the parked ones, which are those that a person decides about.
    let filter = DeadLetterFilter { open: filter.open && filter.status.is_some(), ..filter };
    let items = state.dead_letters.dead_letter_groups(&filter, limit).await?;
    Ok(Json(Groups { items }))
}

pub(in crate::http) async fn show(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Detail>, Problem> {
    let id = letter_id(&id)?;
    let filter = DeadLetterFilter { id: Some(id), ..DeadLetterFilter::default() };
    let found = state.dead_letters.find(&filter, 1).await?.pop();
    let letter = found.ok_or_else(|| Problem::no_dead_letter(id))?;
    let filter = AuditFilter { dead_letter: Some(id), ..AuditFilter::default() };
    let history = state.audit.audit_entries(&filter, MAX_HISTORY).await?;
    let reads = caller.role >= Role::PayloadReader;
    let payload = reads.then(|| Payload::from_bytes(&letter.payload));
    let original = letter.original_payload.as_deref().filter(|_| reads).map(Payload::from_bytes);
    Ok(Json(Detail { letter: visible(letter, &caller), payload, original, history }))
}

/// Headers may contain as much as payloads.
pub(in crate::http) fn visible(mut letter: DeadLetter, caller: &Caller) -> DeadLetter {
    if caller.role < Role::PayloadReader {
        letter.headers = serde_json::Value::Null;
    }
    letter
}

/// Returns the filter and the limit. Refuses parameters that are unknown, repeated or invalid.
pub(in crate::http) fn parse(query: &str, caller: &Caller) -> Result<(DeadLetterFilter, usize), Problem> {
    let (mut conditions, mut after, mut limit) = (Conditions::default(), None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*name {
            "after" => after.replace(letter_id(&value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            name if conditions.add(name, &value)? => false,
            name => return Err(unknown(name)),
        };
        if is_repeated {
            return Err(repeated(&name));
        }
    }
    let reads = caller.role >= Role::PayloadReader;
    let filter = conditions.or_open(reads);
    // Whether a letter matches tells what is in its payload.
    if filter.path.is_some() && !reads {
        return Err(Problem::forbidden("the parameter path reads payloads; it needs the role payload-reader"));
    }
    Ok((DeadLetterFilter { after, ..filter }, limit.unwrap_or(DEFAULT_LIMIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_payload_readers_search_payloads() {
        let in_payload = |role| {
            let (filter, limit) = parse("q=secret&after=7&limit=9", &Caller { role }).unwrap();
            assert_eq!((filter.after, limit), (Some(7), 9));
            filter.text.unwrap().in_payload
        };
        assert_eq!((in_payload(Role::Viewer), in_payload(Role::PayloadReader)), (false, true));
        for wrong in ["x=1", "limit=0", "after=0", "limit=1&limit=1", "after=1&after=1", "q=a&q=b"] {
            assert!(parse(wrong, &Caller { role: Role::Admin }).is_err(), "{wrong} was accepted");
        }
    }
}
