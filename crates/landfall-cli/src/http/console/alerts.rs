//! Alerts: what fires, what was sent about it, and the mute of one alert.

use axum::Extension;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use landfall::{
    Alert, AlertFilter, AlertId, AlertNotice, AlertState, MuteTarget, NoticeFilter, NoticeState, Timestamp,
};
use maud::{Markup, html};

use super::access::{Form, Visit};
use super::page::{Page, Visitor};
use super::view;
use crate::config::Role;
use crate::http::dlq::{MAX_REASON_CHARACTERS, detached, words};
use crate::http::problem::Problem;
use crate::http::{Shared, State};

const MAX_ALERTS: usize = 200;

const MAX_NOTICES: usize = 50;

const SECTION: &str = "/console/alerts";

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let (all, every) = (AlertFilter::default(), NoticeFilter::default());
    let (alerts, notices) =
        tokio::try_join!(state.alerts.alerts(&all, MAX_ALERTS), state.alerts.alert_notices(&every, MAX_NOTICES),)?;
    let of = |wanted: AlertState| alerts.iter().filter(|alert| alert.state == wanted).collect::<Vec<_>>();
    let (firing, pending, resolved) = (of(AlertState::Firing), of(AlertState::Pending), of(AlertState::Resolved));
    let title = visit.say("Alerts", "告警");
    let main = html! {
        h1 { (title) }
        div data-live="firing" {
            @if firing.is_empty() { p.empty { (visit.say("No alert fires.", "没有触发中的告警。")) } }
            @else { (table(&visit, title, &firing)) }
            @if !pending.is_empty() {
                h2 { (visit.say("Not for long enough yet", "尚未达到持续时间")) }
                (table(&visit, visit.say("Not for long enough yet", "尚未达到持续时间"), &pending))
            }
        }
        section data-live="notices" {
            h2 { (visit.say("Notices, the newest first", "通知（从新到旧）")) }
            @if notices.is_empty() { p.empty { (visit.say("No notice was made yet.", "还没有通知。")) } }
            @else { (self::notices(&visit, &notices)) }
        }
        section data-live="resolved" {
            @if !resolved.is_empty() {
                h2 { (visit.say("Resolved", "已恢复")) }
                (table(&visit, visit.say("Resolved", "已恢复"), &resolved))
            }
        }
    };
    let (twin, command) = (Some("/v1/alerts".into()), Some("landfall alerts list; landfall alerts notices".into()));
    Ok(Page { title: title.into(), section: SECTION, main, twin, command }.render(&visit))
}

fn badge(visit: &Visit, state: AlertState) -> Markup {
    let (class, chinese) = match state {
        AlertState::Firing => ("bad", "触发中"),
        AlertState::Pending => ("warn", "待定"),
        AlertState::Resolved => ("good", "已恢复"),
        AlertState::Rule => ("quiet", "规则"),
    };
    html! { span class={ "badge " (class) } { (visit.say(state.as_str(), chinese)) } }
}

fn labels(alert: &Alert) -> String {
    alert.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn table(visit: &Visit, label: &str, alerts: &[&Alert]) -> Markup {
    let rows = html! {
        table.rows {
            thead { tr {
                th scope="col" { (visit.say("State", "状态")) } th scope="col" { (visit.say("Rule", "规则")) }
                th scope="col" { (visit.say("What", "内容")) } th scope="col" { (visit.say("Since", "开始")) }
                th scope="col" { (visit.say("Muted until", "静音至")) }
                th scope="col" { (visit.say("Sample", "示例")) }
            } }
            tbody { @for alert in alerts {
                tr data-row {
                    td { (badge(visit, alert.state)) }
                    td { a data-open href={ (SECTION) "/" (alert.id) } { code { (alert.rule) } } }
                    td.wide { (alert.summary) div.muted { bdi { (labels(alert)) } } }
                    td { @match alert.firing_since.or(alert.pending_since) {
                        Some(at) => (view::time(visit, at)), None => "–" } }
                    td { @match muted(alert) { Some(until) => (view::time(visit, until)), None => "–" } }
                    td { (sample(alert)) }
                }
            } }
        }
    };
    view::scroll(label, &rows)
}

/// Returns the end of the mute that is in force.
fn muted(alert: &Alert) -> Option<Timestamp> {
    alert.muted_until.filter(|until| *until > Timestamp::now())
}

fn sample(alert: &Alert) -> Markup {
    html! { @match alert.sample {
        Some(id) => a href={ "/console/messages/" (id) } { "#" (id) },
        None => "–",
    } }
}

fn notices(visit: &Visit, notices: &[AlertNotice]) -> Markup {
    let state = |state: NoticeState| match state {
        NoticeState::Waiting => ("warn", visit.say("waiting", "等待中")),
        NoticeState::Delivered => ("good", visit.say("delivered", "已送达")),
        NoticeState::GivenUp => ("bad", visit.say("given up", "已放弃")),
    };
    let title = visit.say("Notices", "通知");
    let rows = html! {
        table.rows {
            thead { tr {
                th scope="col" { (visit.say("State", "状态")) } th scope="col" { (visit.say("Channel", "渠道")) }
                th scope="col" { (visit.say("What", "内容")) } th.number scope="col" { (visit.say("Attempts", "尝试")) }
                th scope="col" { (visit.say("Made", "生成")) }
            } }
            tbody { @for notice in notices {
                @let (class, text) = state(notice.state);
                tr data-row {
                    td { span class={ "badge " (class) } { (text) } }
                    td { bdi { (notice.channel) } }
                    td.wide {
                        a data-open href={ (SECTION) "/" (notice.body.alert) } { code { (notice.body.rule) } } " "
                        (notice.body.kind.as_str()) ": " (notice.body.summary)
                        @if let Some(error) = &notice.error { div.error { (view::clip(error, 240)) } }
                    }
                    td.number { (notice.attempts) }
                    td { (view::time(visit, notice.created_at)) }
                }
            } }
        }
    };
    view::scroll(title, &rows)
}

/// One alert, with the form that mutes it.
pub(super) async fn one(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let alert = find(&state, &id).await?;
    let title = visit.say("Alert", "告警");
    let main = html! {
        h1 { (title) " " code { (alert.rule) } " " (badge(&visit, alert.state)) }
        p { (alert.summary) }
        dl.facts {
            dt { "ID" } dd { code { (alert.id) } }
            dt { (visit.say("About", "对象")) } dd { bdi { (labels(&alert)) } }
            dt { (visit.say("Value", "当前值")) } dd { (view::number(alert.value)) }
            dt { (visit.say("Threshold", "阈值")) } dd { (view::number(alert.threshold)) }
            dt { (visit.say("Sample", "示例")) } dd { (sample(&alert)) }
            @for (text, at) in [
                (visit.say("Fires since", "触发于"), alert.firing_since),
                (visit.say("Resolved", "恢复于"), alert.resolved_at),
                (visit.say("Notice made", "通知于"), alert.notified_at),
                (visit.say("Muted until", "静音至"), muted(&alert)),
            ] { @if let Some(at) = at { dt { (text) } dd { (view::time(&visit, at)) } } }
        }
        @if visit.may(Role::Operator) { (form(&visit, &alert)) }
    };
    let twin = Some(format!("/v1/alerts?rule={}", alert.rule));
    let command = Some(format!("landfall alerts mute {} --for 8h", alert.id));
    Ok(Page { title: format!("{title} {}", alert.rule), section: SECTION, main, twin, command }.render(&visit))
}

async fn find(state: &State, id: &str) -> Result<Alert, Problem> {
    let id: AlertId = id.parse()?;
    let found = state.alerts.alerts(&AlertFilter { id: Some(id), ..AlertFilter::default() }, 1).await?.pop();
    let missing = || landfall::Error::new(landfall::ErrorKind::NotFound, format!("no alert has the id {id}"));
    Ok(found.ok_or_else(missing)?)
}

/// What another operator may change meanwhile.
fn seen(alert: &Alert) -> String {
    alert.muted_until.map(|until| until.to_string()).unwrap_or_default()
}

fn form(visit: &Visit, alert: &Alert) -> Markup {
    html! {
        form.decide method="post" action={ (SECTION) "/" (alert.id) "/mute" } {
            (view::form_token(visit))
            input type="hidden" name="seen" value=(seen(alert));
            h2 { (visit.say("Mute", "静音")) }
            p { (visit.say("Until then no notice that it fires is sent. Its end is still reported.",
                "此前不再发送触发通知；恢复仍会通知。")) }
            (view::period(visit))
            label { span { (visit.say("Reason", "原因")) } input type="text" name="reason" required
                maxlength=(MAX_REASON_CHARACTERS) autocomplete="off"; }
            button type="submit" data-primary name="verb" value="mute" { (visit.say("Mute", "静音")) }
            @if muted(alert).is_some() {
                button.plain type="submit" name="verb" value="end" { (visit.say("End the mute now", "立即结束静音")) }
            }
        }
    }
}

pub(super) async fn mute(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
    form: Extension<Form>,
) -> Result<Response, Problem> {
    let alert = find(&state, &id).await?;
    if form.get("seen").unwrap_or_default() != seen(&alert) {
        return Err(Problem::changed(format!("the mute of alert {} was changed since you looked", alert.id)));
    }
    let reason = words("reason", form.get("reason").unwrap_or_default(), MAX_REASON_CHARACTERS)?.to_owned();
    let until = match form.get("verb") {
        Some("mute") => view::end_of_period(&form)?,
        Some("end") => Timestamp::now(),
        _ => return Err(Problem::invalid("verb must be mute or end")),
    };
    let (alerts, actor, id) = (state.alerts.clone(), visit.actor(), alert.id);
    detached(async move { alerts.mute_alert(&MuteTarget::Alert(id), until, &reason, &actor).await }).await?;
    Ok(Redirect::to(&format!("{SECTION}/{id}")).into_response())
}
