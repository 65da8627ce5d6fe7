//! One message: what happened to it, its error, its contents, who waits behind it, and what can be done.

use axum::extract::Path;
use axum::response::Response;
use landfall::{
    AuditEntry, AuditFilter, DeadLetter, DeadLetterFilter, DeadLetterStatus, GroupName, Key, OutboxDetail, Timestamp,
};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::query::Query;
use super::{actions, payload, view};
use crate::config::Role;
use crate::http::dlq::actions::one;
use crate::http::dlq::{letter_id, letters};
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// Messages of the same key that are counted.
const MAX_BEHIND: usize = 100;

/// What is known about a message besides its letter.
struct Surroundings {
    history: landfall::Result<Vec<AuditEntry>>,
    admitted: landfall::Result<Vec<(GroupName, Timestamp)>>,
    outbox: landfall::Result<Vec<OutboxDetail>>,
    /// Open letters of the same topic, key and group, in order.
    queue: landfall::Result<Vec<DeadLetter>>,
}

impl Surroundings {
    async fn read(state: &State, letter: &DeadLetter) -> Self {
        let filter = AuditFilter { dead_letter: Some(letter.id), ..AuditFilter::default() };
        let queue = async {
            let Some(key) = letter.key.clone() else { return Ok(Vec::new()) };
            let filter = DeadLetterFilter {
                topic: Some(letter.topic.clone()),
                key: Some(key),
                group: letter.group.clone(),
                open: true,
                ..DeadLetterFilter::default()
            };
            state.dead_letters.list_letters(&filter, MAX_BEHIND).await
        };
        let (history, admitted, outbox, queue) = tokio::join!(
            state.audit.audit_entries(&filter, letters::MAX_HISTORY),
            state.deliveries.admitted_by(letter.message_id),
            state.view.show(letter.message_id),
            queue,
        );
        Self { history, admitted, outbox, queue }
    }
}

pub(super) async fn page(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = letter_id(&id)?;
    let letter = one(&state, id).await?;
    let around = Surroundings::read(&state, &letter).await;
    let title = visit.say(format!("Message #{id}"), format!("消息 #{id}"));
    let main = html! {
        h1 { (title) " " span data-live="status" { (view::status(&visit, letter.status)) } }
        (facts(&visit, &letter))
        (actions::offer(&visit, &letter))
        section {
            h2 { (visit.say("Error", "错误")) }
            p { code { (letter.error_code) } }
            pre.error tabindex="0" aria-label=(visit.say("Error", "错误")) { (letter.error) }
            @if !letter.causes.is_empty() {
                h3 { (visit.say("Caused by", "原因")) }
                ol { @for cause in &letter.causes { li.error { (cause) } } }
            }
            p.muted { (visit.say("Fingerprint", "指纹")) " "
                a href=(Query::default().with("fingerprint", &letter.fingerprint).to("/console/messages")) { code {
                    (letter.fingerprint) } } }
        }
        (contents(&visit, &letter))
        div data-live="queue" { (queue(&visit, &letter, &around.queue)) }
        div data-live="history" { (timeline(&visit, &letter, &around)) }
    };
    let (twin, command) = (Some(format!("/v1/dead-letters/{id}")), Some(format!("landfall dlq show {id}")));
    Ok(Page { title, section: "/console/messages", main, twin, command }.render(&visit))
}

fn facts(visit: &Visit, letter: &DeadLetter) -> Markup {
    let group = letter.group.as_ref().map(GroupName::as_str);
    let origin = letter.original_partition.zip(letter.original_offset);
    html! {
        dl.facts {
            dt { (visit.say("Message id", "消息 ID")) } dd { code { (letter.message_id) } }
            dt { (visit.say("Topic", "主题")) } dd { (letter.topic) }
            dt { (visit.say("Key", "键")) } dd {
                (view::key_link(letter.topic.as_str(), letter.key.as_ref().map(Key::as_str), group)) }
            dt { (visit.say("Consumer group", "消费组")) }
            dd { (group.unwrap_or(visit.say("none: the relay could not publish it", "无：中继未能发布"))) }
            dt { (visit.say("Kind", "类型")) } dd { bdi { (letter.kind) } }
            @if let Some(sequence) = letter.sequence { dt { (visit.say("Sequence", "序号")) } dd { (sequence) } }
            dt { (visit.say("Attempts", "尝试")) } dd { (letter.attempts) }
            dt { (visit.say("Redrives", "重投次数")) } dd { (letter.redrives) }
            dt { (visit.say("First seen", "首次出现")) } dd { (view::time(visit, letter.first_seen)) }
            dt { (visit.say("Last attempt", "最近尝试")) } dd { (view::time(visit, letter.last_attempt)) }
            @if let Some(at) = letter.retry_at { dt { (visit.say("Next attempt", "下次尝试")) } dd {
                (view::time(visit, at)) } }
            @if let Some((partition, offset)) = origin {
                dt { (visit.say("Partition, offset", "分区与偏移")) } dd { (partition) ", " (offset) }
            }
            @if let Some(trace) = &letter.trace_id {
                dt { (visit.say("Trace", "链路")) }
                dd { a href=(Query::default().with("trace_id", trace).with("status", "all").to("/console/messages")) {
                    code { (trace) } } }
            }
        }
    }
}

fn contents(visit: &Visit, letter: &DeadLetter) -> Markup {
    if !visit.may(Role::PayloadReader) {
        return html! {
            section { h2 { (visit.say("Payload and headers", "内容与消息头")) }
                p.empty {
                    (visit.say("Your role does not see them; payload-reader does.", "您的角色无权查看；需要 payload-reader。")) } }
        };
    }
    let query = Query::of(&visit.uri);
    let form = payload::Form::choose(query.get("as"), &letter.payload);
    let forms = [
        (payload::Form::Pretty, "pretty", visit.say("Pretty", "排版")),
        (payload::Form::Raw, "raw", visit.say("Raw", "原文")),
        (payload::Form::Hex, "hex", visit.say("Hex", "十六进制")),
    ];
    let path = format!("/console/messages/{}", letter.id);
    html! {
        section id="payload" {
            h2 { (visit.say("Payload", "内容")) " " span.muted { (view::number(letter.payload.len() as u64))
                " " (visit.say("bytes", "字节")) } }
            p.tabs {
                @for (known, name, text) in forms {
                    a href={ (query.clone().with("as", name).to(&path)) "#payload" }
                        aria-current=[(known == form).then_some("true")] { (text) } " "
                }
                a href={ (path) "/payload" } { (visit.say("Download", "下载")) }
            }
            (payload::show(visit, &letter.payload, form))
            @if let Some(original) = &letter.original_payload {
                h3 { (visit.say("Before it was edited", "修改之前")) }
                (payload::show(visit, original, payload::Form::choose(query.get("as"), original)))
            }
        }
        section {
            h2 { (visit.say("Headers", "消息头")) }
            @match letter.headers.as_object().filter(|headers| !headers.is_empty()) {
                Some(headers) => (view::scroll(visit.say("Headers", "消息头"), &html! {
                    table {
                        thead { tr { th scope="col" { (visit.say("Name", "名称")) } th scope="col" {
                            (visit.say("Value", "值")) } } }
                        tbody { @for (name, value) in headers {
                            tr { td { code { (name) } } td.wide { bdi {
                                (value.as_str().map_or_else(|| value.to_string(), str::to_owned)) } } }
                        } }
                    }
                })),
                None => p.empty { (visit.say("It has no headers.", "没有消息头。")) },
            }
        }
    }
}

/// Who is before it and who waits behind it.
fn queue(visit: &Visit, letter: &DeadLetter, queue: &landfall::Result<Vec<DeadLetter>>) -> Markup {
    let queue = match queue {
        Ok(queue) => queue,
        Err(error) => return view::unknown(visit, error),
    };
    let behind = queue.iter().filter(|other| other.id > letter.id).count();
    let before: Vec<_> = queue.iter().filter(|other| other.id < letter.id).collect();
    let is_final = matches!(letter.status, DeadLetterStatus::Done | DeadLetterStatus::Discarded);
    if letter.key.is_none() || (is_final && queue.is_empty()) {
        return html! {};
    }
    let count = if queue.len() == MAX_BEHIND { format!("{behind}+") } else { behind.to_string() };
    let group = letter.group.as_ref().map(GroupName::as_str);
    html! {
        section {
            h2 { (visit.say("Its key", "同键消息")) }
            @if let Some(first) = before.first() {
                p { (visit.say("It waits behind", "排在它之前：")) " " a href={ "/console/messages/" (first.id) } {
                    "#" (first.id) } " "
                    (view::status(visit, first.status)) }
            }
            p { strong { (count) } " " (visit.say("messages of its key are behind it.", "条同键消息排在它之后。")) " "
                (view::key_link(letter.topic.as_str(), letter.key.as_ref().map(Key::as_str), group)) }
        }
    }
}

fn timeline(visit: &Visit, letter: &DeadLetter, around: &Surroundings) -> Markup {
    let title = visit.say("History", "历史");
    let rows = |history: &[AuditEntry]| {
        view::scroll(
            title,
            &html! {
                table {
                    thead { tr {
                        th scope="col" { (visit.say("When", "时间")) } th scope="col" { (visit.say("What", "动作")) }
                        th scope="col" { (visit.say("Who", "操作者")) } th scope="col" { (visit.say("Detail", "说明")) }
                    } }
                    tbody { @for entry in history {
                        tr { td { (view::time(visit, entry.at)) } td { code { (entry.action) } } td { bdi {
                            (entry.actor) } } td.wide { (entry.detail) } }
                    } }
                }
            },
        )
    };
    html! {
        section {
            h2 { (title) }
            @match &around.outbox {
                Ok(rows) => @for detail in rows {
                    p { (visit.say("Enqueued", "写入发件箱")) " " (view::time(visit, detail.row.created_at)) ", "
                        (visit.say("outbox row", "行")) " " (detail.row.row) " (" (detail.row.state.as_str()) ")" }
                },
                Err(error) => (view::unknown(visit, error)),
            }
            @match &around.admitted {
                Ok(groups) => @for (group, at) in groups {
                    p { (visit.say("In the inbox of", "已进入收件箱：")) " " (group) " " (view::time(visit, *at)) }
                },
                Err(error) => (view::unknown(visit, error)),
            }
            @match &around.history {
                Ok(history) if history.is_empty() => p.empty { (visit.say("No change is recorded.", "没有变更记录。")) },
                Ok(history) => (rows(history)),
                Err(error) => (view::unknown(visit, error)),
            }
            p { a href={ "/console/audit?message_id=" (letter.message_id) } {
                (visit.say("All audit rows of this message id", "此消息 ID 的全部审计记录")) } }
        }
    }
}
