//! Redrive jobs: the list, and one with its receipt.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;
use landfall::{RedriveCounts, RedriveJob, RedriveState};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::query::Query;
use super::view;
use crate::config::Role;
use crate::http::Shared;
use crate::http::dlq::redrive_id;
use crate::http::problem::Problem;

const PAGE: usize = 50;

pub(super) async fn list(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let query = Query::of(&visit.uri);
    let before = query.get("before").map(redrive_id).transpose()?;
    let jobs = state.redrives.redrive_jobs(before, PAGE).await?;
    let title = visit.say("Redrives", "重投");
    let main = html! {
        h1 { (title) }
        div data-live="jobs" {
            @if jobs.is_empty() {
                p.empty { (visit.say("No redrive was started yet. Select messages to start one.", "还没有重投任务。请先选择消息。")) }
            } @else { (view::scroll(title, &table(&visit, &jobs))) }
        }
        @if jobs.len() == PAGE && let Some(last) = jobs.last() {
            p.pages { a rel="next" href=(query.clone().with("before", last.id).to("/console/redrives")) {
                (visit.say("Older", "更早")) " →"
            } }
        }
    };
    let (twin, command) = (Some(query.to("/v1/redrives")), Some("landfall dlq redrives".into()));
    Ok(Page { title: title.into(), section: "/console/redrives", main, twin, command }.render(&visit))
}

fn table(visit: &Visit, jobs: &[RedriveJob]) -> Markup {
    html! {
        table.rows {
            thead { tr {
                th scope="col" { (visit.say("State", "状态")) } th scope="col" { (visit.say("What", "对象")) }
                th scope="col" { (visit.say("Progress", "进度")) } th scope="col" { (visit.say("Who, why", "操作者与原因")) }
                th scope="col" { (visit.say("Started", "开始")) }
            } }
            tbody { @for job in jobs {
                tr data-row {
                    td { (view::job_state(visit, job.state)) }
                    td.wide { a data-open href={ "/console/redrives/" (job.id) } {
                        (view::clip(&what(visit, job), 120)) } }
                    td { (bar(visit, &job.counts)) }
                    td.wide { bdi { (job.actor) } @if !job.reason.is_empty() { div.muted { (job.reason) } } }
                    td { (view::time(visit, job.created_at)) }
                }
            } }
        }
    }
}

/// Says in words what a job redrives.
pub(super) fn what(visit: &Visit, job: &RedriveJob) -> String {
    let count = view::number(job.counts.matched);
    let of_filter = |filter: &serde_json::Map<String, serde_json::Value>| {
        let pairs = filter.iter().map(|(name, value)| format!("{name} = {}", value.as_str().unwrap_or_default()));
        pairs.collect::<Vec<_>>().join(", ")
    };
    match job.selection.get("filter").and_then(serde_json::Value::as_object) {
        Some(filter) => visit.say(
            format!("{count} messages with {}", of_filter(filter)),
            format!("{count} 条消息：{}", of_filter(filter)),
        ),
        None => visit.say(format!("{count} selected messages"), format!("所选的 {count} 条消息")),
    }
}

/// Progress as a bar with its figures, without inline styles.
pub(super) fn bar(visit: &Visit, counts: &RedriveCounts) -> Markup {
    let of = |part: u64| if counts.matched == 0 { 0.0 } else { part as f64 * 100.0 / counts.matched as f64 };
    let (succeeded, failed) = (of(counts.succeeded), of(counts.failed));
    // Each part begins where the one before it ends.
    let parts = [
        ("good", 0.0, succeeded),
        ("bad", succeeded, failed),
        ("quiet", succeeded + failed, of(counts.skipped + counts.missing)),
    ];
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" role="img"
            aria-label={ (view::number(counts.settled())) " / " (view::number(counts.matched)) } {
            rect.rest x="0" y="0" width="100" height="6" {}
            @for (class, at, width) in parts {
                rect class=(class) x=(format!("{at:.2}")) y="0" width=(format!("{width:.2}")) height="6" {}
            }
        }
        span.muted { (view::number(counts.settled())) " / " (view::number(counts.matched))
            " " (visit.say("settled", "已了结")) }
    }
}

pub(super) async fn page(
    axum::extract::State(state): Shared,
    visit: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = redrive_id(&id)?;
    let job = state.redrives.redrive_job(id).await?.ok_or_else(|| Problem::no_redrive(id))?;
    let skips: BTreeMap<String, u64> = state.redrives.redrive_skips(id).await?.into_iter().collect();
    let title = visit.say("Redrive", "重投");
    let main = html! {
        div data-live="job" {
            h1 { (title) " " (view::job_state(&visit, job.state)) }
            p { (what(&visit, &job)) }
            div.progress { (bar(&visit, &job.counts)) }
            @if let Some(reason) = &job.stop_reason { p.problem { (visit.say("Why it stopped: ", "停止原因：")) (reason) } }
            (controls(&visit, &job))
            (receipt(&visit, &job, &skips))
        }
        (facts(&visit, &job))
    };
    let (twin, command) = (Some(format!("/v1/redrives/{id}")), Some(format!("landfall dlq redrives {id}")));
    Ok(Page { title: title.into(), section: "/console/redrives", main, twin, command }.render(&visit))
}

fn controls(visit: &Visit, job: &RedriveJob) -> Markup {
    let offered: &[(&str, &str, &str)] = match job.state {
        _ if !visit.may(Role::Operator) => &[],
        RedriveState::Running => &[("pause", "Pause", "暂停"), ("stop", "Stop", "停止")],
        RedriveState::Paused => &[("resume", "Resume", "继续"), ("stop", "Stop", "停止")],
        RedriveState::Stopped | RedriveState::Finished => &[],
    };
    html! {
        @if !offered.is_empty() {
            form.actions method="post" action={ "/console/redrives/" (job.id) "/control" } {
                (view::form_token(visit))
                input type="hidden" name="seen" value=(job.state.as_str());
                @for (verb, english, chinese) in offered {
                    button class=[(*verb == "stop").then_some("bad")] type="submit" name="control" value=(verb) {
                        (visit.say(*english, *chinese)) }
                }
                span.muted { (visit.say(
                    "After a stop, messages in flight are still settled and the rest stays parked.",
                    "停止后，处理中的消息仍会了结，其余保持停放。",
                )) }
            }
        }
    }
}

/// The numbers add up: matched is the sum of the others.
fn receipt(visit: &Visit, job: &RedriveJob, skips: &BTreeMap<String, u64>) -> Markup {
    let counts = &job.counts;
    let rows = [
        ("succeeded", visit.say("succeeded", "成功"), counts.succeeded),
        ("failed", visit.say("failed again", "再次失败"), counts.failed),
        ("skipped", visit.say("skipped", "跳过"), counts.skipped),
        ("missing", visit.say("no longer stored", "已不存在"), counts.missing),
        ("remaining", visit.say("remaining", "剩余"), counts.remaining),
    ];
    html! {
        h2 { (visit.say("Receipt", "回执")) }
        table.receipt {
            tbody {
                @for (name, text, count) in rows {
                    tr { th scope="row" { (text) } td.number data-count=(name) { (view::number(count)) }
                        td.muted { @if name == "skipped" {
                            @for (reason, count) in skips { span { (skip(visit, reason)) ": " (view::number(*count)) }
                                " " }
                        } }
                    }
                }
            }
            tfoot { tr { th scope="row" { (visit.say("matched", "匹配")) } td.number data-count="matched" {
                (view::number(counts.matched)) } td {} } }
        }
    }
}

/// Why a message is not redriven, in words.
pub(super) fn skip<'a>(visit: &Visit, reason: &'a str) -> &'a str {
    match reason {
        "ready" => visit.say("would be handed back now", "将立即重投"),
        "waits" => visit.say("would follow an earlier one of its key", "将排在同键消息之后"),
        "not-parked" => visit.say("not parked", "不在停放状态"),
        "ignored" => visit.say("ignored by a person", "已被人忽略"),
        "limit" => visit.say("redriven too often", "重投次数过多"),
        "cool-down" => visit.say("failed a moment ago", "刚刚失败，冷却中"),
        "blocked" => visit.say("blocked after repeated failures", "多次失败后被阻止"),
        "too-old" => visit.say("older than the inbox remembers", "早于收件箱保留期"),
        "predecessor" => visit.say("an earlier one of its key is not redriven", "同键的前一条未重投"),
        "missing" => visit.say("no longer stored", "已不存在"),
        other => other,
    }
}

fn facts(visit: &Visit, job: &RedriveJob) -> Markup {
    let options = &job.options;
    html! {
        dl.facts {
            dt { "ID" } dd { code { (job.id) } }
            dt { (visit.say("Who", "操作者")) } dd { bdi { (job.actor) } }
            dt { (visit.say("Why", "原因")) } dd { @if job.reason.is_empty() { "–" } @else { (job.reason) } }
            dt { (visit.say("Lane", "通道")) } dd { (options.lane.as_str()) }
            dt { (visit.say("Rate", "速率")) }
            dd { @match options.rate_per_s { Some(rate) => { (rate) (visit.say(" a second", " 条/秒")) }
                None => (visit.say("no limit", "不限")) } }
            dt { (visit.say("In flight at most", "最多同时处理")) } dd { (options.concurrency) }
            dt { (visit.say("Ramp", "逐步放量")) } dd {
                (if options.ramp { visit.say("5, then 1 %, then 10 %, then the rest", "5 条，1 %，10 %，其余") } else {
                    visit.say("no", "否") }) }
            dt { (visit.say("Started", "开始")) } dd { (view::time(visit, job.created_at)) }
            dt { (visit.say("Last change", "最近变化")) } dd { (view::time(visit, job.updated_at)) }
        }
        p { a href={ "/console/audit?message_id=" (job.id) } { (visit.say("Audit rows of this redrive", "此重投的审计记录")) } }
    }
}
