//! What people change: one message, or a redrive job. Each action runs the code of the API, compares what the person
//! saw with what is stored, and then leads to the page that shows the result.

use axum::Extension;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use landfall::{DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStatus, MessageId, RedriveControl};
use maud::{Markup, html};
use ring::digest::{SHA256, digest};

use super::access::{Form, Visit};
use super::page::Visitor;
use super::query::Query;
use super::rehearse::{TYPED_FROM, request};
use super::session::hex;
use super::{payload, view};
use crate::config::Role;
use crate::http::dlq::actions::{one, redrive_one};
use crate::http::dlq::redrives::store;
use crate::http::dlq::request::{Fields, Whole};
use crate::http::dlq::{MAX_REASON_CHARACTERS, detached, letter_id, redrive_id, words};
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// The largest payload that a form offers for editing.
const MAX_EDITED: usize = 256 * 1024;

type Filled = Extension<Form>;

/// The forms that the state of a letter and the role allow.
pub(super) fn offer(visit: &Visit, letter: &DeadLetter) -> Markup {
    let (is_parked, is_ignored) =
        (letter.status == DeadLetterStatus::Parked, letter.status == DeadLetterStatus::Ignored);
    if !visit.may(Role::Operator) || !(is_parked || is_ignored) {
        return html! {};
    }
    let path = |verb: &str| format!("/console/messages/{}/{verb}", letter.id);
    let reason = html! {
        label { span { (visit.say("Reason", "原因")) } input type="text" name="reason" required
            maxlength=(MAX_REASON_CHARACTERS) autocomplete="off"; }
    };
    let form = |verb: &str, body: Markup| {
        html! {
            form.decide method="post" action=(path(verb)) {
                (view::form_token(visit))
                input type="hidden" name="seen" value=(letter.status.as_str());
                input type="hidden" name="seen_payload" value=(payload_hash(&letter.payload));
                (body)
            }
        }
    };
    html! {
        section.choices aria-label=(visit.say("Actions", "操作")) {
            @if is_ignored {
                details open { summary { (visit.say("Release", "解除忽略")) }
                    (form("release", html! {
                        p { (visit.say("It is parked again, and a redrive may take it.", "恢复为停放状态，可以被重投。")) }
                        (reason) button type="submit" { (visit.say("Release", "解除忽略")) }
                    }))
                }
            } @else {
                details open { summary { (visit.say("Redrive", "重投")) }
                    (form("redrive", html! {
                        p {
                            (visit.say("The same handler runs again; the messages behind it follow.",
                                "同一处理程序再次运行；其后的消息随后继续。")) }
                        button type="submit" data-primary { (visit.say("Redrive this message", "重投此消息")) } " "
                        a href={ "/console/rehearse?ids=" (letter.id) } { (visit.say("Rehearse first", "先预演")) }
                    }))
                }
                @if let Some(text) = editable(letter) {
                    details { summary { (visit.say("Edit the payload", "修改内容")) }
                        (form("edit", html! {
                            label { span { (visit.say("Payload", "内容")) }
                                textarea name="payload" rows="10" spellcheck="false" { "\n" (text) } }
                            p { (visit.say("The original is kept. Redrive the message afterwards.", "原内容会保留。修改后再重投。")) }
                            button type="submit" { (visit.say("Save", "保存")) }
                        }))
                    }
                }
                details { summary { (visit.say("Ignore", "忽略")) }
                    (form("ignore", html! {
                        p {
                            (visit.say("No redrive takes it until it is released. Its key keeps waiting.",
                                "解除之前不会被重投。其键继续等待。")) }
                        (reason) button type="submit" { (visit.say("Ignore", "忽略")) }
                    }))
                }
                details { summary { (visit.say("Discard", "丢弃")) }
                    (form("discard", html! {
                        p {
                            (visit.say("It never takes effect. The messages behind it follow. This cannot be undone.",
                                "它永远不会生效，其后的消息继续。无法撤销。")) }
                        (reason) button.bad type="submit" { (visit.say("Discard for good", "永久丢弃")) }
                    }))
                }
            }
        }
    }
}

/// Returns the payload as a form can carry it: browsers change line ends, so one with a carriage return is not offered.
fn editable(letter: &DeadLetter) -> Option<&str> {
    let text = std::str::from_utf8(&letter.payload).ok()?;
    (text.len() <= MAX_EDITED && !text.contains(['\r', '\0'])).then_some(text)
}

fn payload_hash(payload: &[u8]) -> String {
    hex(digest(&SHA256, payload).as_ref())
}

pub(super) async fn redrive(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Filled,
) -> Result<Response, Problem> {
    let letter = unchanged(&state, &id, &form).await?;
    redrive_one(&state, letter.id, visit.actor()).await?;
    Ok(back(letter.id))
}

pub(super) async fn ignore(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Filled,
) -> Result<Response, Problem> {
    let (id, reason) = (unchanged(&state, &id, &form).await?.id, reason(&form)?);
    let (letters, actor) = (state.dead_letters.clone(), visit.actor());
    detached(async move { letters.ignore(id, &reason, &actor).await }).await?;
    Ok(back(id))
}

pub(super) async fn release(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Filled,
) -> Result<Response, Problem> {
    let (id, reason) = (unchanged(&state, &id, &form).await?.id, reason(&form)?);
    let (letters, actor) = (state.dead_letters.clone(), visit.actor());
    detached(async move { letters.release_ignored(id, &reason, &actor).await }).await?;
    Ok(back(id))
}

pub(super) async fn discard(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Filled,
) -> Result<Response, Problem> {
    let (id, reason) = (unchanged(&state, &id, &form).await?.id, reason(&form)?);
    let (letters, actor) = (state.dead_letters.clone(), visit.actor());
    let filter = DeadLetterFilter { id: Some(id), ..DeadLetterFilter::default() };
    let done = detached(async move { letters.discard(&filter, &reason, &actor).await }).await?;
    if done.discarded.is_empty() {
        return Err(Problem::changed(format!("dead letter {id} is not parked any more")));
    }
    Ok(back(id))
}

pub(super) async fn edit(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Filled,
) -> Result<Response, Problem> {
    let letter = unchanged(&state, &id, &form).await?;
    if editable(&letter).is_none() {
        let detail = format!("use `landfall dlq edit {id}`: the payload is large, or is not plain text");
        return Err(Problem::invalid(detail));
    }
    // Browsers send the line ends of a text area as CR LF.
    let payload = form.raw("payload").unwrap_or_default().replace("\r\n", "\n").into_bytes();
    let was_json = payload::pretty(&letter.payload).is_some();
    if was_json && serde_json::from_slice::<serde::de::IgnoredAny>(&payload).is_err() {
        return Err(Problem::invalid("the payload was JSON and is not any more; nothing was saved"));
    }
    if payload == letter.payload {
        return Ok(back(letter.id));
    }
    let (id, letters, actor) = (letter.id, state.dead_letters.clone(), visit.actor());
    detached(async move { letters.edit(id, &payload, &actor).await }).await?;
    Ok(back(id))
}

/// Returns the letter if it is as the person saw it. The change itself compares the state again, in its transaction.
async fn unchanged(state: &State, id: &str, form: &Form) -> Result<DeadLetter, Problem> {
    let letter = one(state, letter_id(id)?).await?;
    let seen = form.get("seen").unwrap_or_default();
    if seen != letter.status.as_str() {
        let now = letter.status.as_str();
        return Err(Problem::changed(format!("dead letter {id} was {seen} when you looked, and is {now} now")));
    }
    if form.get("seen_payload").is_some_and(|seen| seen != payload_hash(&letter.payload)) {
        return Err(Problem::changed(format!("the payload of dead letter {id} was edited since you looked")));
    }
    Ok(letter)
}

fn reason(form: &Form) -> Result<String, Problem> {
    words("reason", form.get("reason").unwrap_or_default(), MAX_REASON_CHARACTERS).map(str::to_owned)
}

fn back(id: DeadLetterId) -> Response {
    Redirect::to(&format!("/console/messages/{id}")).into_response()
}

/// Starts a redrive of the selection that was rehearsed.
pub(super) async fn start(
    axum::extract::State(state): Shared,
    visit: Visitor,
    form: Filled,
) -> Result<Response, Problem> {
    let query = Query::parse(form.get("selection").unwrap_or_default());
    let rate = form.get("rate").map(str::parse).transpose();
    let rate = rate.map_err(|_| Problem::invalid("the rate must be a whole number"))?.map(Whole);
    let fields = Fields {
        lane: form.get("lane").map(str::to_owned),
        rate_per_s: rate,
        ramp: Some(form.get("ramp").is_some()),
        reason: Some(reason(&form)?),
        ..Fields::default()
    };
    let given: MessageId = form.get("given").unwrap_or_default().parse()?;
    let mut request = request(&query, fields, Some(given))?;
    let shown = form.get("expected").unwrap_or_default();
    let expected: u64 = shown.parse().map_err(|_| Problem::invalid("expected must be the count of the rehearsal"))?;
    if expected >= TYPED_FROM && form.get("typed").map(str::trim) != Some(shown) {
        return Err(Problem::invalid(format!("type the count {expected} to redrive so many messages")));
    }
    // The transaction that freezes the selection compares it. A form that was submitted before leads to its redrive,
    // whatever the selection is now.
    request.expected = Some(expected);
    let job = store(&state, request, visit.actor()).await?;
    Ok(Redirect::to(&format!("/console/redrives/{}", job.id)).into_response())
}

/// Pauses, resumes or stops a redrive.
pub(super) async fn control(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Filled,
) -> Result<Response, Problem> {
    let id = redrive_id(&id)?;
    let control = match form.get("control") {
        Some("pause") => RedriveControl::Pause,
        Some("resume") => RedriveControl::Resume,
        Some("stop") => RedriveControl::Stop,
        _ => return Err(Problem::invalid("control must be pause, resume or stop")),
    };
    let job = state.redrives.redrive_job(id).await?.ok_or_else(|| Problem::no_redrive(id))?;
    let (seen, now) = (form.get("seen").unwrap_or_default(), job.state.as_str());
    if seen != now {
        return Err(Problem::changed(format!("redrive {id} was {seen} when you looked, and is {now} now")));
    }
    let (redrives, actor) = (state.redrives.clone(), visit.actor());
    detached(async move { redrives.control_redrive(id, control, &actor).await }).await?;
    Ok(Redirect::to(&format!("/console/redrives/{id}")).into_response())
}
