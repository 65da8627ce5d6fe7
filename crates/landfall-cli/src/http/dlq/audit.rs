//! `GET /v1/audit`: the audit trail, as a page or as JSON lines.

use axum::Json;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use landfall::{AuditEntry, AuditFilter};
use serde::Serialize;

use super::filter::{repeated, unknown};
use super::{MAX_ACTOR_CHARACTERS, letter_id, words};
use crate::http::Shared;
use crate::http::deliveries::{DEFAULT_LIMIT, parse_limit};
use crate::http::problem::Problem;

const JSON_LINES: &str = "application/jsonl";

/// The longest actor that is stored.
const MAX_STORED_ACTOR: usize = 3 * MAX_ACTOR_CHARACTERS;

#[derive(Debug, Serialize)]
pub(in crate::http) struct Page {
    items: Vec<AuditEntry>,
    /// The value of `after` for the next page.
    next: Option<i64>,
}

pub(in crate::http) async fn list(
    axum::extract::State(state): Shared,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (filter, limit) = parse(query.as_deref().unwrap_or_default())?;
    let items = state.audit.audit_entries(&filter, limit).await?;
    if wants_lines(&headers) {
        let mut lines = String::new();
        for item in &items {
            let line = serde_json::to_string(item).map_err(|error| {
                landfall::Error::new(landfall::ErrorKind::Internal, "cannot write an audit row").with_source(error)
            })?;
            lines.push_str(&line);
            lines.push('\n');
        }
        return Ok(([(header::CONTENT_TYPE, JSON_LINES)], lines).into_response());
    }
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.id);
    Ok(Json(Page { items, next }).into_response())
}

/// Whether the client names JSON lines and not JSON.
fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or_default());
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case(JSON_LINES))
}

pub(in crate::http) fn parse(query: &str) -> Result<(AuditFilter, usize), Problem> {
    let (mut filter, mut limit) = (AuditFilter::default(), None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*name {
            "dead_letter" => filter.dead_letter.replace(letter_id(&value)?).is_some(),
            "message_id" => filter.message_id.replace(value.parse()?).is_some(),
            "actor" => filter.actor.replace(words("actor", &value, MAX_STORED_ACTOR)?.to_owned()).is_some(),
            "action" => filter.action.replace(words("action", &value, 64)?.to_owned()).is_some(),
            "from" => filter.from.replace(value.parse()?).is_some(),
            "to" => filter.to.replace(value.parse()?).is_some(),
            "after" => filter.after.replace(letter_id(&value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            name => return Err(unknown(name)),
        };
        if is_repeated {
            return Err(repeated(&name));
        }
    }
    Ok((filter, limit.unwrap_or(DEFAULT_LIMIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_are_sent_on_request() {
        let wants = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            wants_lines(&headers)
        };
        assert!(wants("application/jsonl") && wants("text/html, Application/JSONL;q=0.9"));
        assert!(!wants("application/json") && !wants("*/*") && !wants_lines(&HeaderMap::new()));
    }

    #[test]
    fn every_parameter_is_parsed() {
        let (filter, limit) = parse("dead_letter=7&actor=maria&action=redrive&after=9&limit=5").unwrap();
        assert_eq!((filter.dead_letter, filter.after, limit), (Some(7), Some(9), 5));
        assert_eq!((filter.actor.as_deref(), filter.action.as_deref()), (Some("maria"), Some("redrive")));
        for wrong in ["x=1", "after=x", "actor=", "actor=a&actor=a", "from=yesterday"] {
            assert!(parse(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
