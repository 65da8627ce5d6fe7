//! `POST /v1/dead-letter-groups/{fingerprint}`: what people say about a failure group.

use axum::extract::{Path, Request};
use axum::{Extension, Json};
use landfall::{GroupChange, GroupState, GroupStatus, Timestamp};
use serde::Deserialize;

use super::filter::fingerprint;
use super::request::Whole;
use super::{MAX_REASON_CHARACTERS, actor, detached, words};
use crate::http::auth::Caller;
use crate::http::problem::Problem;
use crate::http::{Shared, body};

/// The most bytes of a body.
const BODY_LIMIT: usize = 16 * 1024;

/// A year.
const MAX_MUTE_S: i64 = 366 * 24 * 3600;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    state: Option<String>,
    mute_s: Option<Whole>,
    note: Option<String>,
    actor: Option<String>,
}

pub(in crate::http) async fn change(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(given): Path<String>,
    request: Request,
) -> Result<Json<GroupStatus>, Problem> {
    // The body first: a client that is refused while it still sends may get a reset instead of the response.
    let body = body::read(request.into_body(), BODY_LIMIT, state.request_timeout).await?;
    let fingerprint = fingerprint(&given)?;
    let fields = parse(&body)?;
    let change = wanted(&fields)?;
    let note = match fields.note.as_deref() {
        None | Some("") => String::new(),
        Some(note) => words("note", note, MAX_REASON_CHARACTERS)?.to_owned(),
    };
    let (groups, actor) = (state.letter_groups.clone(), actor(fields.actor.as_deref(), &caller)?);
    let changed = detached(async move { groups.change_group(&fingerprint, change, &note, &actor).await });
    Ok(Json(changed.await?))
}

fn parse(body: &[u8]) -> Result<Fields, Problem> {
    let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not valid: {why}"));
    // serde would also accept an array with the values in field order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(wrong(&"it must be a JSON object with state or note"));
    }
    serde_json::from_slice(body).map_err(|error| wrong(&error))
}

fn wanted(fields: &Fields) -> Result<GroupChange, Problem> {
    let state = fields.state.as_deref().map(str::parse::<GroupState>).transpose()?;
    let change = match (state, fields.mute_s) {
        (Some(GroupState::Muted), Some(Whole(seconds))) if (1..=MAX_MUTE_S).contains(&seconds) => {
            let until = Timestamp::from_millis(Timestamp::now().as_millis() + seconds * 1000);
            return Ok(GroupChange::Mute { until });
        }
        (Some(GroupState::Muted), _) => {
            return Err(Problem::invalid(format!("the state muted needs mute_s, from 1 to {MAX_MUTE_S}")));
        }
        (_, Some(_)) => return Err(Problem::invalid("mute_s is of the state muted only")),
        (Some(GroupState::Acknowledged), None) => GroupChange::Acknowledge,
        (Some(GroupState::Resolved), None) => GroupChange::Resolve,
        (Some(GroupState::Open), None) => GroupChange::Reopen,
        (Some(GroupState::Regressed), None) => {
            return Err(Problem::invalid(
                "a group becomes regressed by itself; set open, acknowledged, muted or resolved",
            ));
        }
        (None, None) if fields.note.is_some() => GroupChange::Note,
        (None, None) => return Err(Problem::invalid("give state or note")),
    };
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_names_one_change() {
        let of = |body: &str| wanted(&parse(body.as_bytes())?);
        assert_eq!(of(r#"{"state": "resolved", "note": "x"}"#).unwrap(), GroupChange::Resolve);
        assert_eq!(of(r#"{"note": ""}"#).unwrap(), GroupChange::Note);
        assert!(matches!(of(r#"{"state": "muted", "mute_s": 60}"#).unwrap(), GroupChange::Mute { .. }));
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"actor": "maria"}"#,
            r#"{"state": "muted"}"#,
            r#"{"state": "muted", "mute_s": 0}"#,
            r#"{"state": "open", "mute_s": 5}"#,
            r#"{"state": "regressed"}"#,
            r#"{"state": "closed"}"#,
            r#"{"stat": "open"}"#,
        ] {
            assert!(of(wrong).is_err(), "{wrong} was accepted");
        }
    }
}
