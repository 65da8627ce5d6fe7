//! The audit trail.

use std::time::Duration;

use axum::response::Response;
use landfall::{AuditEntry, Timestamp};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::query::{Query, quoted};
use super::view;
use crate::http::Shared;
use crate::http::dlq::audit;
use crate::http::problem::Problem;

const PAGE: usize = 100;

/// What is shown without any filter.
const RECENT: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let asked = Query::of(&visit.uri);
    let since = Timestamp::from_millis(Timestamp::now().as_millis() - RECENT.as_millis() as i64);
    let query =
        if asked.clone().without("limit").is_empty() { asked.clone().with("from", since) } else { asked.clone() };
    let (filter, _) = audit::parse(&query.text())?;
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE);
    let rows = state.audit.audit_entries(&filter, limit).await?;
    let title = visit.say("Audit", "审计");
    let main = html! {
        h1 { (title) }
        form.filter method="get" action="/console/audit" role="search" {
            (view::field(&query, "actor", visit.say("Who", "操作者"), ""))
            (view::field(&query, "action", visit.say("Action", "动作"), ""))
            (view::field(&query, "dead_letter", visit.say("Message #", "消息 #"), ""))
            (view::field(&query, "message_id", visit.say("Message or redrive id", "消息或重投 ID"), ""))
            (view::field(&query, "from", visit.say("From (UTC)", "起始 (UTC)"), "2026-11-18T08:00:00Z"))
            (view::field(&query, "to", visit.say("Before (UTC)", "截止 (UTC)"), ""))
            button type="submit" { (visit.say("Filter", "筛选")) }
        }
        @if asked.is_empty() {
            p.muted { (visit.say("The last 24 hours, the oldest first.", "最近 24 小时，从旧到新。")) " "
                a href="/console/audit?from=2000-01-01T00:00:00Z" { (visit.say("From the beginning", "从头开始")) } }
        }
        @if rows.is_empty() { p.empty { (visit.say("No row matches.", "没有符合条件的记录。")) } }
        @else { (view::scroll(title, &table(&visit, &rows))) }
        @if rows.len() == limit && let Some(last) = rows.last() {
            p.pages { a rel="next" href=(query.clone().with("after", last.id).to("/console/audit")) {
                (visit.say("Next page", "下一页")) " →" } }
        }
    };
    let (twin, export) = (query.to("/v1/audit"), query.with("limit", 1000).to("/v1/audit"));
    let address = quoted(&format!("{}{export}", visit.origin));
    let command = Some(format!("curl -H 'Accept: application/jsonl' {address}"));
    Ok(Page { title: title.into(), section: "/console/audit", main, twin: Some(twin), command }.render(&visit))
}

fn table(visit: &Visit, rows: &[AuditEntry]) -> Markup {
    html! {
        table.rows {
            thead { tr {
                th scope="col" { (visit.say("When", "时间")) } th scope="col" { (visit.say("Who", "操作者")) }
                th scope="col" { (visit.say("Action", "动作")) } th scope="col" { (visit.say("What", "对象")) }
                th scope="col" { (visit.say("Detail", "说明")) }
            } }
            tbody { @for row in rows {
                tr data-row {
                    td { (view::time(visit, row.at)) } td { bdi { (row.actor) } } td { code { (row.action) } }
                    td { @match (row.dead_letter_id, row.message_id) {
                        (Some(letter), _) => a data-open href={ "/console/messages/" (letter) } { "#" (letter) },
                        (None, Some(id)) if row.action.starts_with("redrive-") => a data-open href={
                            "/console/redrives/" (id) } { (visit.say("redrive", "重投任务")) },
                        (None, Some(id)) => code { (id) },
                        (None, None) => "–",
                    } }
                    td.wide { (row.detail) }
                }
            } }
        }
    }
}
