//! Parked messages, grouped by the fingerprint of their error.

use axum::response::Response;
use landfall::{DeadLetterFilter, DeadLetterGroup};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::query::Query;
use super::{group, view};
use crate::config::Role;
use crate::http::Shared;
use crate::http::dlq::letters;
use crate::http::problem::Problem;

const MAX_GROUPS: usize = 200;

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let query = Query::of(&visit.uri).without("after").without("limit");
    let (filter, _) = letters::parse(&query.text(), &visit.caller())?;
    // As the API: without a status the parked ones.
    let filter = DeadLetterFilter { open: filter.open && filter.status.is_some(), ..filter };
    let groups = state.dead_letters.dead_letter_groups(&filter, MAX_GROUPS).await?;
    let shown: Vec<&DeadLetterGroup> = groups.iter().collect();
    let main = html! {
        h1 { (visit.say("Failures", "故障")) }
        p.muted { (visit.say(
            "One row for all parked messages with the same cause.",
            "同一原因的已停放消息合并为一行。",
        )) }
        form.filter method="get" action="/console/failures" role="search" {
            (view::field(&query, "topic", visit.say("Topic", "主题"), ""))
            (view::field(&query, "group", visit.say("Consumer group", "消费组"), ""))
            (view::field(&query, "code", visit.say("Code", "错误码"), ""))
            (view::field(&query, "q", visit.say("Text in the error", "错误中的文字"), ""))
            button type="submit" { (visit.say("Filter", "筛选")) }
        }
        div data-live="groups" {
            @if shown.is_empty() {
                p.empty {
                    @if query.is_empty() { (visit.say("No message is parked.", "没有已停放的消息。")) }
                    @else { (visit.say("No parked message matches the filter.", "没有符合条件的已停放消息。")) }
                }
            } @else {
                (table(&visit, &shown))
                @if shown.len() == MAX_GROUPS {
                    p.muted { (visit.say("Only the largest groups are shown.", "只显示最大的若干组。")) }
                }
            }
        }
    };
    let (twin, command) = (query.to("/v1/dead-letter-groups"), format!("landfall dlq groups{}", query.flags()));
    let title = visit.say("Failures", "故障").into();
    Ok(Page { title, section: "/console/failures", main, twin: Some(twin), command: Some(command) }.render(&visit))
}

pub(super) fn table(visit: &Visit, groups: &[&DeadLetterGroup]) -> Markup {
    let rows = html! {
        table.rows {
            thead { tr {
                th.number scope="col" { (visit.say("Count", "数量")) }
                th.number scope="col" { (visit.say("Hour", "一小时")) }
                th.number scope="col" { (visit.say("Day", "一天")) }
                th scope="col" { (visit.say("State", "状态")) }
                th scope="col" { (visit.say("Error", "错误")) }
                th scope="col" { (visit.say("Newest", "最近")) }
                th scope="col" { (visit.say("First", "最早")) }
                th scope="col" { (visit.say("Sample", "示例")) }
                @if visit.may(Role::Operator) { th scope="col" { (visit.say("Action", "操作")) } }
            } }
            tbody {
                @for group in groups {
                    @let query = Query::default().with("fingerprint", &group.fingerprint).with("status", "parked");
                    tr data-row {
                        td.number { (view::number(group.count)) }
                        td.number { (view::number(group.last_hour)) }
                        td.number { (view::number(group.last_day)) }
                        td {
                            (group::badge(visit, group)) div { a href={ "/console/failures/" (group.fingerprint) } {
                                @if visit.may(Role::Operator) { (visit.say("Decide…", "处理…")) }
                                @else { (visit.say("Details", "详情")) } } }
                        }
                        td.wide {
                            a data-open href=(query.to("/console/messages")) { code { (group.error_code) } }
                            div.error { (view::clip(&group.error, 240)) }
                            @if !group.note.is_empty() { div.muted { (visit.say("Note: ", "备注：")) (group.note) } }
                        }
                        td { (view::time(visit, group.last_seen)) }
                        td { (view::time(visit, group.first_seen)) }
                        td { a href={ "/console/messages/" (group.sample) } { "#" (group.sample) } }
                        @if visit.may(Role::Operator) {
                            td { a data-redrive href=(query.to("/console/rehearse")) { (visit.say("Redrive…", "重投…"))
                                } }
                        }
                    }
                }
            }
        }
    };
    view::scroll(visit.say("Failures", "故障"), &rows)
}
