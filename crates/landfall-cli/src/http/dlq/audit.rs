//! `GET /v1/audit`: the audit trail as a page, or all of it as JSON lines or CSV.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use landfall::{AuditEntry, AuditFilter};
use serde::Serialize;

use super::filter::{repeated, unknown};
use super::{MAX_ACTOR_CHARACTERS, letter_id, words};
use crate::audit_csv;
use crate::http::deliveries::{DEFAULT_LIMIT, parse_limit};
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// Rows that an export reads together.
const PAGE: usize = 1000;

/// How a client wants an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    JsonLines,
    Csv,
}

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
    if let Some(format) = Format::accepted(&headers) {
        return export(state, filter, limit, format).await;
    }
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    let items = state.audit.audit_entries(&filter, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.id);
    Ok(Json(Page { items, next }).into_response())
}

/// Streams every matching row, or `limit` of them. If a later page cannot be read, the connection breaks, so that the
/// client does not take a part for the whole.
async fn export(
    state: Arc<State>,
    filter: AuditFilter,
    limit: Option<usize>,
    format: Format,
) -> Result<Response, Problem> {
    let mut export = Export { state, filter, left: limit.unwrap_or(usize::MAX), format, is_done: false };
    // The first page here, so that an error is an answer.
    let first = export.next().await?.unwrap_or_default();
    let head = if format == Format::Csv { audit_csv::heading() } else { String::new() };
    let later = futures_util::stream::try_unfold(export, async |mut export| {
        Ok::<_, landfall::Error>(export.next().await?.map(|text| (text, export)))
    });
    let body = Body::from_stream(futures_util::stream::once(async move { Ok(head + &first) }).chain(later));
    Ok(([(header::CONTENT_TYPE, format.content_type())], body).into_response())
}

struct Export {
    state: Arc<State>,
    filter: AuditFilter,
    left: usize,
    format: Format,
    is_done: bool,
}

impl Export {
    /// Returns the text of the next page.
    async fn next(&mut self) -> landfall::Result<Option<String>> {
        if self.is_done {
            return Ok(None);
        }
        let asked = PAGE.min(self.left);
        let rows = self.state.audit.audit_entries(&self.filter, asked).await?;
        self.left -= rows.len();
        self.is_done = rows.len() < asked || self.left == 0;
        self.filter.after = rows.last().map(|last| last.id).or(self.filter.after);
        let mut text = String::new();
        for row in &rows {
            match self.format {
                Format::JsonLines => text.push_str(&line(row)?),
                Format::Csv => text.push_str(&audit_csv::line(row)),
            }
        }
        Ok(Some(text))
    }
}

fn line(row: &AuditEntry) -> landfall::Result<String> {
    let line = serde_json::to_string(row).map_err(|error| {
        landfall::Error::new(landfall::ErrorKind::Internal, "cannot write an audit row").with_source(error)
    })?;
    Ok(line + "\n")
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Self::JsonLines => "application/jsonl",
            Self::Csv => "text/csv",
        }
    }

    /// Returns the first format of an export that the client names.
    fn accepted(headers: &HeaderMap) -> Option<Self> {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut kinds =
            accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or_default().trim());
        kinds.find_map(|kind| {
            [Self::JsonLines, Self::Csv].into_iter().find(|format| kind.eq_ignore_ascii_case(format.content_type()))
        })
    }
}

/// Returns the filter, and the limit if one is given.
pub(in crate::http) fn parse(query: &str) -> Result<(AuditFilter, Option<usize>), Problem> {
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
    Ok((filter, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_sent_on_request() {
        let accepted = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            Format::accepted(&headers)
        };
        assert_eq!(accepted("text/html, Application/JSONL;q=0.9"), Some(Format::JsonLines));
        assert_eq!(accepted("text/csv; charset=utf-8"), Some(Format::Csv));
        assert_eq!((accepted("application/json"), accepted("*/*")), (None, None));
    }

    #[test]
    fn every_parameter_is_parsed() {
        let (filter, limit) = parse("dead_letter=7&actor=maria&action=redrive&after=9&limit=5").unwrap();
        assert_eq!((filter.dead_letter, filter.after, limit), (Some(7), Some(9), Some(5)));
        assert_eq!((filter.actor.as_deref(), filter.action.as_deref()), (Some("maria"), Some("redrive")));
        for wrong in ["x=1", "after=x", "actor=", "actor=a&actor=a", "from=yesterday"] {
            assert!(parse(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
