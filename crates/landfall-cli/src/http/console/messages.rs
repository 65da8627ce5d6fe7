//! Searches messages. Every filter is in the URL, and pages follow each other by id, at any depth.

use axum::response::Response;
use landfall::{AtLeast, DeadLetter, DeadLetterFilter, DeadLetterStats, DeadLetterStatus};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::query::Query;
use super::view;
use crate::config::Role;
use crate::http::Shared;
use crate::http::dlq::letters;
use crate::http::problem::Problem;

const PAGE: usize = 50;

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let query = Query::of(&visit.uri);
    let (filter, _) = letters::parse(&query.text(), &visit.caller())?;
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE);
    let uncounted = DeadLetterFilter { after: None, ..filter.clone() };
    let (found, matched) = tokio::join!(
        state.dead_letters.list_letters(&filter, limit),
        state.dead_letters.count_letters(&uncounted, letters::MAX_COUNT),
    );
    let (found, matched) = (found?, matched?);
    // They read every letter, and only an empty page needs them.
    let stats = match found.is_empty() {
        true => Some(state.dead_letters.dead_letter_stats().await?),
        false => None,
    };
    let selection = query.clone().without("after").without("limit");
    let main = html! {
        h1 { (visit.say("Messages", "消息")) }
        (form(&visit, &query))
        p.count {
            strong { (view::at_least(&visit, matched)) } " "
            (visit.say("messages match", "条消息符合条件"))
            @if selection.get("status").is_none() { " " span.muted { (visit.say("(open ones)", "（未了结）")) } }
        }
        @if let Some(stats) = stats {
            p.empty { (empty(&visit, &selection, stats)) }
        } @else {
            (list(&visit, &selection, &found, matched))
            @if found.len() == limit && let Some(last) = found.last() {
                p.pages { a rel="next" href=(query.clone().with("after", last.id).to("/console/messages")) {
                    (visit.say("Next page", "下一页")) " →"
                } }
            }
        }
    };
    let (twin, command) = (query.to("/v1/dead-letters"), format!("landfall dlq list{}", query.flags()));
    let title = visit.say("Messages", "消息").into();
    Ok(Page { title, section: "/console/messages", main, twin: Some(twin), command: Some(command) }.render(&visit))
}

/// Nothing yet, nothing matches, or all is resolved.
fn empty(visit: &Visit, query: &Query, stats: DeadLetterStats) -> &'static str {
    let DeadLetterStats { parked, delayed, waiting, redriving, done, discarded, ignored } = stats;
    let open = parked + delayed + waiting + redriving + ignored;
    if open + done + discarded == 0 {
        visit.say("No message has failed yet.", "还没有消息失败过。")
    } else if query.is_empty() && open == 0 {
        visit.say("All resolved: no message is open.", "全部已解决：没有未了结的消息。")
    } else {
        visit.say("No message matches the filter.", "没有符合条件的消息。")
    }
}

fn form(visit: &Visit, query: &Query) -> Markup {
    let status = query.get("status").unwrap_or("open");
    let others = [("open", "未了结"), ("all", "全部")];
    let chinese = ["已停放", "延迟重试", "等待中", "重投中", "已完成", "已丢弃", "已忽略"];
    let states = DeadLetterStatus::ALL.iter().map(|status| status.as_str()).zip(chinese);
    html! {
        form.filter method="get" action="/console/messages" role="search" {
            label { span { (visit.say("Text", "文字")) }
                input type="search" name="q" value=(query.get("q").unwrap_or_default())
                    data-search autocomplete="off"; }
            (view::field(query, "topic", visit.say("Topic", "主题"), ""))
            (view::field(query, "key", visit.say("Key", "键"), ""))
            (view::field(query, "group", visit.say("Consumer group", "消费组"), ""))
            (view::field(query, "code", visit.say("Code", "错误码"), ""))
            label { span { (visit.say("Status", "状态")) }
                select name="status" {
                    @for (value, chinese) in others.into_iter().chain(states) {
                        option value=(value) selected[value == status] { (visit.say(value, chinese)) }
                    }
                }
            }
            details
                open[["message_id", "fingerprint", "trace_id", "from", "to"].iter().any(|name|
                    query.get(name).is_some())] {
                summary { (visit.say("More", "更多")) }
                div {
                    (view::field(query, "message_id", visit.say("Message id", "消息 ID"), ""))
                    (view::field(query, "fingerprint", visit.say("Fingerprint", "指纹"), ""))
                    (view::field(query, "trace_id", visit.say("Trace", "链路"), ""))
                    (view::field(query, "from", visit.say("First seen from (UTC)", "起始时间 (UTC)"),
                        "2026-11-18T08:00:00Z"))
                    (view::field(query, "to", visit.say("First seen before (UTC)", "截止时间 (UTC)"),
                        "2026-11-18T09:00:00Z"))
                }
            }
            button type="submit" { (visit.say("Search", "搜索")) }
            a.plain href="/console/messages" { (visit.say("Clear", "清除")) }
        }
    }
}

fn list(visit: &Visit, selection: &Query, found: &[DeadLetter], matched: AtLeast) -> Markup {
    // A job takes the parked ones unless a status is named. The whole table needs at least that condition.
    let all = match selection.get("status") {
        None if selection.is_empty() => selection.clone().with("status", "parked"),
        _ => selection.clone(),
    };
    html! {
        @if visit.may(Role::Operator) {
            form method="get" action="/console/rehearse" {
                p.actions {
                    button type="submit" { (visit.say("Redrive selected…", "重投所选…")) }
                    a.button data-redrive href=(all.to("/console/rehearse")) {
                        (visit.say("Redrive what matches…", "重投全部符合项…")) " (" (view::at_least(visit, matched)) ")"
                    }
                }
                (view::scroll(visit.say("Messages", "消息"), &table(visit, found, true)))
            }
        } @else {
            (view::scroll(visit.say("Messages", "消息"), &table(visit, found, false)))
        }
    }
}

pub(super) fn table(visit: &Visit, found: &[DeadLetter], selects: bool) -> Markup {
    html! {
        table.rows {
            thead { tr {
                @if selects { th scope="col" { span.hidden { (visit.say("Select", "选择")) } } }
                th scope="col" { "#" }
                th scope="col" { (visit.say("Status", "状态")) }
                th scope="col" { (visit.say("Topic, key", "主题与键")) }
                th scope="col" { (visit.say("Error", "错误")) }
                th.number scope="col" { (visit.say("Attempts", "尝试")) }
                th scope="col" { (visit.say("First seen", "首次出现")) }
            } }
            tbody {
                @for letter in found {
                    tr data-row {
                        @if selects {
                            td { input type="checkbox" name="ids" value=(letter.id) data-select
                                aria-label={ (visit.say("Select", "选择")) " #" (letter.id) }; }
                        }
                        td { a data-open href={ "/console/messages/" (letter.id) } { "#" (letter.id) } }
                        td { (view::status(visit, letter.status)) }
                        td {
                            div.topic { (letter.topic) @if let Some(group) = &letter.group { " " span.muted {
                                "→ " (group) }
                                } }
                            div {
                                (view::key_link(letter.topic.as_str(), letter.key.as_ref().map(landfall::Key::as_str),
                                    letter.group.as_ref().map(landfall::GroupName::as_str))) }
                        }
                        td.wide {
                            @if !letter.error_code.is_empty() { code { (letter.error_code) } }
                            div.error { (view::clip(&letter.error, 200)) }
                        }
                        td.number { (letter.attempts) }
                        td { (view::time(visit, letter.first_seen)) }
                    }
                }
            }
        }
    }
}
