//! `GET /v1/alerts` and `GET /v1/alert-notices`: the state of alerts, and what was sent about them.
//! `POST /v1/alerts/{id}/mute` mutes one.

use axum::extract::{Path, RawQuery, Request};
use axum::{Extension, Json};
use landfall::{Alert, AlertFilter, AlertId, AlertNotice, AlertState, MessageId, MuteTarget, NoticeFilter, Timestamp};
use serde::{Deserialize, Serialize};

use super::auth::Caller;
use super::deliveries::{DEFAULT_LIMIT, parse_limit};
use super::dlq::request::Whole;
use super::dlq::{MAX_REASON_CHARACTERS, actor, detached, words};
use super::problem::Problem;
use super::{Shared, body};

/// The longest name of a rule or a channel.
const MAX_NAME: usize = 64;

/// The longest mute: a year.
const MAX_MUTE_S: i64 = 366 * 24 * 3600;

/// The most bytes of a body.
const BODY_LIMIT: usize = 16 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MuteFields {
    for_s: Whole,
    reason: Option<String>,
    actor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Muted {
    id: AlertId,
    muted_until: Timestamp,
}

#[derive(Debug, Serialize)]
pub(super) struct AlertPage {
    items: Vec<Alert>,
}

#[derive(Debug, Serialize)]
pub(super) struct NoticePage {
    items: Vec<AlertNotice>,
    /// The value of `before` for the next page.
    next: Option<MessageId>,
}

pub(super) async fn list(
    axum::extract::State(state): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<AlertPage>, Problem> {
    let (filter, limit) = parse_alerts(query.as_deref().unwrap_or_default())?;
    Ok(Json(AlertPage { items: state.alerts.alerts(&filter, limit).await? }))
}

pub(super) async fn notices(
    axum::extract::State(state): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<NoticePage>, Problem> {
    let (filter, limit) = parse_notices(query.as_deref().unwrap_or_default())?;
    let items = state.alerts.alert_notices(&filter, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.id);
    Ok(Json(NoticePage { items, next }))
}

pub(super) async fn mute(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Muted>, Problem> {
    // The body first: a client that is refused while it still sends may get a reset instead of the response.
    let body = body::read(request.into_body(), BODY_LIMIT, state.request_timeout).await?;
    let id: AlertId = id.parse()?;
    let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not valid: {why}"));
    let fields: MuteFields = match body.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(&body).map_err(|error| wrong(&error))?,
        // serde would also accept an array with the values in field order.
        _ => return Err(wrong(&"it must be a JSON object with for_s")),
    };
    let Whole(seconds) = fields.for_s;
    if !(0..=MAX_MUTE_S).contains(&seconds) {
        return Err(Problem::invalid(format!("for_s must be a number from 0 to {MAX_MUTE_S}")));
    }
    let reason = match fields.reason.as_deref() {
        Some(reason) => words("reason", reason, MAX_REASON_CHARACTERS)?.to_owned(),
        None => String::new(),
    };
    let actor = actor(fields.actor.as_deref(), &caller)?;
    let muted_until = Timestamp::from_millis(Timestamp::now().as_millis() + seconds * 1000);
    let alerts = state.alerts.clone();
    detached(async move { alerts.mute_alert(&MuteTarget::Alert(id), muted_until, &reason, &actor).await }).await?;
    Ok(Json(Muted { id, muted_until }))
}

fn parse_alerts(query: &str) -> Result<(AlertFilter, usize), Problem> {
    let (mut filter, mut limit) = (AlertFilter::default(), None);
    for (field, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*field {
            "state" => filter.state.replace(alert_state(&value)?).is_some(),
            "rule" => filter.rule.replace(name("rule", &value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            _ => return Err(unknown(&field)),
        };
        if is_repeated {
            return Err(repeated(&field));
        }
    }
    Ok((filter, limit.unwrap_or(DEFAULT_LIMIT)))
}

fn parse_notices(query: &str) -> Result<(NoticeFilter, usize), Problem> {
    let (mut filter, mut limit) = (NoticeFilter::default(), None);
    for (field, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*field {
            "channel" => filter.channel.replace(name("channel", &value)?).is_some(),
            "state" => filter.state.replace(value.parse()?).is_some(),
            "before" => filter.before.replace(value.parse()?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            _ => return Err(unknown(&field)),
        };
        if is_repeated {
            return Err(repeated(&field));
        }
    }
    Ok((filter, limit.unwrap_or(DEFAULT_LIMIT)))
}

/// Rows of whole rules are not alerts.
fn alert_state(text: &str) -> Result<AlertState, Problem> {
    let state = text.parse().ok().filter(|state| *state != AlertState::Rule);
    state.ok_or_else(|| Problem::invalid(format!("state {text:?} is none of pending, firing, resolved")))
}

fn name(field: &str, text: &str) -> Result<String, Problem> {
    let is_valid = (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        Problem::invalid(format!("{field} must have 1 to {MAX_NAME} letters, digits, -, _ or ., not {text:?}"))
    })
}

fn unknown(field: &str) -> Problem {
    Problem::invalid(format!("the parameter {field:?} is unknown"))
}

fn repeated(field: &str) -> Problem {
    Problem::invalid(format!("the parameter {field} is repeated"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_or_refused() {
        let (filter, limit) = parse_alerts("state=firing&rule=new-group&limit=7").unwrap();
        assert_eq!((filter.state, filter.rule.as_deref(), limit), (Some(AlertState::Firing), Some("new-group"), 7));
        for wrong in ["state=rule", "state=x", "rule=", "rule=a%20b", "x=1", "limit=0", "state=firing&state=firing"] {
            assert!(parse_alerts(wrong).is_err(), "{wrong} was accepted");
        }
        let query = "channel=ops&state=given_up&before=0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";
        let (filter, limit) = parse_notices(query).unwrap();
        assert_eq!((filter.channel.as_deref(), filter.before.is_some(), limit), (Some("ops"), true, DEFAULT_LIMIT));
        for wrong in ["before=x", "state=given-up", "channel=%00", "x=1", "limit=1&limit=1"] {
            assert!(parse_notices(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
