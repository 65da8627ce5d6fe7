//! What a redrive of the selection would do, and the form that starts it.
//!
//! The selection is in the URL and frozen by time: a filter without an end gets the moment of the rehearsal as its end.
//! The form repeats the selection and its count, and a redrive starts only if they still agree.

use axum::response::{IntoResponse, Redirect, Response};
use landfall::{MessageId, RedriveRequest, Timestamp};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::query::Query;
use super::{redrives, view};
use crate::http::Shared;
use crate::http::dlq::letter_id;
use crate::http::dlq::redrives::{DryRun, count, dry_run};
use crate::http::dlq::request::{Fields, Run, Whole};
use crate::http::problem::Problem;

/// From this count on the person types it.
pub(super) const TYPED_FROM: u64 = 1000;

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let query = Query::of(&visit.uri);
    if query.all("ids").is_empty() && !query.is_empty() && query.get("to").is_none() {
        return Ok(Redirect::to(&query.with("to", Timestamp::now()).to("/console/rehearse")).into_response());
    }
    let request = request(&query, Fields::default(), None)?;
    let result = dry_run(&state, request.selection.clone(), Run::default(), String::new()).await?;
    // Last, so that little time is left for a change before the form is submitted.
    let matched = count(&state, &request.selection).await?;
    let title = visit.say("Rehearsal", "预演");
    let main = html! {
        h1 { (title) }
        p { (visit.say(
            "What a redrive of this selection would do now. Nothing has been changed.",
            "对所选消息重投会发生什么。目前没有任何修改。",
        )) }
        (selection(&visit, &query))
        (predictions(&visit, &result, matched))
        @if matched == 0 {
            p.empty { (visit.say("No message matches the selection.", "没有符合条件的消息。")) }
        } @else { (form(&visit, &query, matched)) }
    };
    let flags = if query.all("ids").is_empty() { query.flags() } else { " --id $id".into() };
    let mut command = format!("landfall dlq redrive --dry-run{flags}");
    if !query.all("ids").is_empty() {
        command = format!("for id in {}; do {command}; done", query.all("ids").join(" "));
    }
    let command = Some(command);
    Ok(Page { title: title.into(), section: "/console/redrives", main, twin: None, command }.render(&visit))
}

/// Returns the request for the selection of `query`, as the API would read it.
pub(super) fn request(query: &Query, fields: Fields, given: Option<MessageId>) -> Result<RedriveRequest, Problem> {
    let ids = query.all("ids");
    let (mut filter, mut named) = (None, None);
    if ids.is_empty() {
        let mut conditions = Map::new();
        for (name, value) in query.pairs() {
            if conditions.insert(name.to_owned(), Value::from(value)).is_some() {
                return Err(Problem::invalid(format!("the parameter {name} is repeated")));
            }
        }
        // An end alone is what this page adds; it selects nothing.
        if conditions.keys().all(|name| name == "to") {
            return Err(Problem::invalid("the selection is empty; select the messages to redrive"));
        }
        filter = Some(conditions);
    } else {
        named = Some(ids.into_iter().map(|id| letter_id(id).map(Whole)).collect::<Result<Vec<_>, _>>()?);
    }
    Fields { filter, ids: named, ..fields }.into_request(given)
}

fn selection(visit: &Visit, query: &Query) -> Markup {
    let ids = query.all("ids");
    html! {
        dl.facts {
            @if !ids.is_empty() {
                dt { (visit.say("Messages", "消息")) }
                dd { @for id in ids { a href={ "/console/messages/" (id) } { "#" (id) } " " } }
            } @else {
                @for (name, value) in query.pairs() { dt { (name) } dd { bdi { (value) } } }
            }
        }
    }
}

fn predictions(visit: &Visit, result: &DryRun, matched: u64) -> Markup {
    let examined = result.predictions.values().sum::<u64>();
    html! {
        @if examined < matched {
            p.muted { (visit.say(
                format!("The predictions are of the first {} messages. A redrive takes all of them.",
                    view::number(examined)),
                format!("以下预测只针对前 {} 条消息；重投会处理全部消息。", view::number(examined)),
            )) }
        }
        table.receipt {
            tbody { @for (outcome, count) in &result.predictions {
                tr { th scope="row" { (redrives::skip(visit, outcome)) } td.number data-count=(outcome) {
                    (view::number(*count)) } }
            } }
            tfoot { tr { th scope="row" { (visit.say("matched", "匹配")) } td.number data-count="matched" {
                (view::number(matched)) } } }
        }
    }
}

fn form(visit: &Visit, query: &Query, matched: u64) -> Markup {
    html! {
        form.decide method="post" action="/console/redrives" {
            (view::form_token(visit))
            input type="hidden" name="selection" value=(query.text());
            input type="hidden" name="expected" value=(matched);
            // A form that is submitted twice starts one redrive.
            input type="hidden" name="given" value=(MessageId::new());
            h2 { (visit.say("Start the redrive", "开始重投")) }
            label { span { (visit.say("Reason", "原因")) }
                input type="text" name="reason" required maxlength="1000" autocomplete="off"; }
            label { span { (visit.say("Lane", "通道")) }
                select name="lane" {
                    option value="slow" selected { (visit.say("slow: behind live traffic", "慢速：让位于实时流量")) }
                    option value="main" { (visit.say("main: as fast as the consumers take it", "主通道：尽快")) }
                }
            }
            label { span { (visit.say("At most per second (optional)", "每秒最多（可选）")) }
                input type="number" name="rate" min="1" max="100000"; }
            label.check { input type="checkbox" name="ramp" value="yes" checked;
                span { (visit.say("Ramp: 5 first, then 1 %, then 10 %", "逐步放量：先 5 条，再 1 %，再 10 %")) } }
            @if matched >= TYPED_FROM {
                label { span { (visit.say(format!("Type the count: {matched}"), format!("请输入数量：{matched}"))) }
                    input type="text" name="typed" required inputmode="numeric" pattern=(matched) autocomplete="off"; }
            }
            button type="submit" data-primary { (visit.say("Redrive", "重投"))
                " " (view::number(matched)) }
        }
    }
}
