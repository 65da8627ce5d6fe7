//! One failure group: all dead letters with a fingerprint, and what people say about it.

use axum::Extension;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use landfall::{DeadLetterFilter, DeadLetterGroup, DeadLetterStatus, GroupChange, GroupState};
use maud::{Markup, html};

use super::access::{Form, Visit};
use super::page::{Page, Visitor};
use super::query::Query;
use super::view;
use crate::config::Role;
use crate::http::dlq::filter::fingerprint;
use crate::http::dlq::{MAX_REASON_CHARACTERS, detached, words};
use crate::http::problem::Problem;
use crate::http::{Shared, State};

const SECTION: &str = "/console/failures";

/// The state of a group, and how long it is muted.
pub(super) fn badge(visit: &Visit, group: &DeadLetterGroup) -> Markup {
    let (class, chinese) = match group.state {
        GroupState::Open => ("bad", "未处理"),
        GroupState::Acknowledged => ("info", "处理中"),
        GroupState::Muted => ("quiet", "已静音"),
        GroupState::Resolved => ("good", "已解决"),
        GroupState::Regressed => ("bad", "复发"),
    };
    html! {
        span class={ "badge " (class) } { (visit.say(group.state.as_str(), chinese)) }
        @if let Some(until) = group.muted_until { " " (view::time(visit, until)) }
    }
}

pub(super) async fn page(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(given): Path<String>,
) -> Result<Response, Problem> {
    let group = find(&state, &given).await?;
    let title = visit.say("Failure", "故障");
    let query = Query::default().with("fingerprint", &group.fingerprint).with("status", "parked");
    let main = html! {
        h1 { (title) " " code { (group.error_code) } " " (badge(&visit, &group)) }
        pre { (view::clip(&group.error, 2000)) }
        dl.facts {
            dt { (visit.say("Parked", "已停放")) }
            dd { a href=(query.to("/console/messages")) { (view::number(group.count)) } }
            dt { (visit.say("First seen in the last hour, day", "最近一小时、一天首次出现")) }
            dd { (view::number(group.last_hour)) ", " (view::number(group.last_day)) }
            dt { (visit.say("Newest", "最近")) } dd { (view::time(&visit, group.last_seen)) }
            dt { (visit.say("First", "最早")) } dd { (view::time(&visit, group.first_seen)) }
            dt { (visit.say("Sample", "示例")) }
            dd { a href={ "/console/messages/" (group.sample) } { "#" (group.sample) } }
            dt { (visit.say("Fingerprint", "指纹")) } dd { code { (group.fingerprint) } }
            dt { (visit.say("Note", "备注")) } dd { @if group.note.is_empty() { "–" } @else { (group.note) } }
        }
        @if visit.may(Role::Operator) { (form(&visit, &group)) }
    };
    let twin = Some(format!("/v1/dead-letter-groups?fingerprint={}", group.fingerprint));
    let command = Some(format!("landfall dlq groups --fingerprint {}", group.fingerprint));
    Ok(Page { title: format!("{title} {}", group.error_code), section: SECTION, main, twin, command }.render(&visit))
}

async fn find(state: &State, given: &str) -> Result<DeadLetterGroup, Problem> {
    let wanted = fingerprint(given)?;
    let filter = DeadLetterFilter {
        fingerprint: Some(wanted.clone()),
        status: Some(DeadLetterStatus::Parked),
        ..DeadLetterFilter::default()
    };
    let found = state.dead_letters.dead_letter_groups(&filter, 1).await?.pop();
    let missing =
        || landfall::Error::new(landfall::ErrorKind::NotFound, format!("no parked message has the cause {wanted}"));
    Ok(found.ok_or_else(missing)?)
}

/// What another operator may change meanwhile.
fn seen(group: &DeadLetterGroup) -> String {
    let until = group.muted_until.map(|until| until.to_string()).unwrap_or_default();
    format!("{} {until} {}", group.state.as_str(), group.note)
}

fn form(visit: &Visit, group: &DeadLetterGroup) -> Markup {
    // Enter in the field of the note presses the first button.
    let verbs: [(&str, &str, &str, bool); 4] = [
        ("note", "Save the note only", "仅保存备注", true),
        ("acknowledge", "Acknowledge: a person works on it", "认领：正在处理", group.state != GroupState::Acknowledged),
        ("resolve", "Resolve: the cause is repaired", "解决：原因已修复", group.state != GroupState::Resolved),
        ("reopen", "Reopen", "重新打开", group.state != GroupState::Open),
    ];
    html! {
        form.decide method="post" action={ (SECTION) "/" (group.fingerprint) "/decide" } {
            (view::form_token(visit))
            input type="hidden" name="seen" value=(seen(group));
            h2 { (visit.say("Decide", "处理")) }
            label { span { (visit.say("Note", "备注")) } input type="text" name="note" value=(group.note)
                maxlength=(MAX_REASON_CHARACTERS) autocomplete="off"; }
            p.actions { @for (verb, english, chinese, is_offered) in verbs { @if is_offered {
                button type="submit" name="verb" value=(verb) { (visit.say(english, chinese)) }
            } } }
            (view::period(visit))
            button type="submit" name="verb" value="mute" { (visit.say("Mute", "静音")) }
        }
    }
}

pub(super) async fn decide(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(given): Path<String>,
    form: Extension<Form>,
) -> Result<Response, Problem> {
    let group = find(&state, &given).await?;
    if form.raw("seen").unwrap_or_default() != seen(&group) {
        let now = group.state.as_str();
        return Err(Problem::changed(format!("the group was changed since you looked, and is {now} now")));
    }
    let change = match form.get("verb") {
        Some("acknowledge") => GroupChange::Acknowledge,
        Some("resolve") => GroupChange::Resolve,
        Some("reopen") => GroupChange::Reopen,
        Some("note") => GroupChange::Note,
        Some("mute") => GroupChange::Mute { until: view::end_of_period(&form)? },
        _ => return Err(Problem::invalid("verb must be acknowledge, mute, resolve, reopen or note")),
    };
    let note = match form.get("note") {
        Some(note) => words("note", note, MAX_REASON_CHARACTERS)?.to_owned(),
        None => String::new(),
    };
    let (groups, actor, fingerprint) = (state.letter_groups.clone(), visit.actor(), group.fingerprint);
    let to = format!("{SECTION}/{fingerprint}");
    detached(async move { groups.change_group(&fingerprint, change, &note, &actor).await }).await?;
    Ok(Redirect::to(&to).into_response())
}
