//! The start page: whether all is well, the figures, the newest failures, and the redrives that run.

use std::time::Duration;

use axum::response::Response;
use landfall::{
    DeadLetterFilter, DeadLetterGroup, DeadLetterStats, Error, ErrorKind, HalfMessageStats, OutboxStats, RedriveJob,
    RedriveState,
};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::view;
use super::{failures, redrives};
use crate::http::health::ask_broker;
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// Groups that are read to find the newest.
const GROUPS: usize = 200;

const NEWEST: usize = 8;

/// An outbox this far behind is worth a look.
pub(super) const LATE_SECONDS: f64 = 30.0;

/// Time limit for each figure, so that the page tells of a database that does not answer before an open page gives up.
const LIMIT: Duration = Duration::from_secs(5);

/// What the page shows. A part that cannot be read is unknown; the others are still shown.
struct Figures {
    letters: landfall::Result<DeadLetterStats>,
    outbox: landfall::Result<OutboxStats>,
    half: landfall::Result<HalfMessageStats>,
    retrying: landfall::Result<u64>,
    groups: landfall::Result<Vec<DeadLetterGroup>>,
    jobs: landfall::Result<Vec<RedriveJob>>,
    broker: Result<(), String>,
}

impl Figures {
    async fn read(state: &State) -> Self {
        let filter = DeadLetterFilter::default();
        let (letters, outbox, half, retrying, groups, jobs, broker) = tokio::join!(
            within(state.dead_letters.dead_letter_stats()),
            within(state.view.stats()),
            within(state.half.half_message_stats()),
            within(state.deliveries.retrying_counts()),
            within(state.dead_letters.dead_letter_groups(&filter, GROUPS)),
            within(state.redrives.redrive_jobs(None, 20)),
            ask_broker(state),
        );
        let retrying = retrying.map(|counts| counts.iter().map(|(_, _, count)| count).sum());
        Self { letters, outbox, half, retrying, groups, jobs, broker }
    }
}

async fn within<T>(question: impl Future<Output = landfall::Result<T>>) -> landfall::Result<T> {
    let late = || Error::new(ErrorKind::Unavailable, format!("no response within {} seconds", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, question).await.unwrap_or_else(|_| Err(late()))
}

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let figures = Figures::read(&state).await;
    let main = html! {
        h1.hidden { (visit.say("Now", "现在")) }
        div data-live="now" {
            (verdict(&visit, &figures))
            (counters(&visit, &figures))
        }
        div data-live="jobs" { (running(&visit, &figures)) }
        section data-live="groups" {
            h2 { (visit.say("Newest failures", "最新故障")) }
            @match &figures.groups {
                Ok(groups) => (newest(&visit, groups)),
                Err(error) => (view::unknown(&visit, error)),
            }
        }
    };
    let (twin, command) = (Some("/v1/dead-letter-groups".into()), Some("landfall dlq groups".into()));
    Ok(Page { title: visit.say("Now", "现在").into(), section: "/", main, twin, command }.render(&visit))
}

/// One sentence: whether all is well, and else what is not, the worst first.
fn verdict(visit: &Visit, figures: &Figures) -> Markup {
    let unknown = [
        figures.letters.as_ref().err().map(ToString::to_string),
        figures.outbox.as_ref().err().map(ToString::to_string),
        figures.half.as_ref().err().map(ToString::to_string),
    ];
    let mut worries: Vec<(&str, String)> = Vec::new();
    if let Err(error) = &figures.broker {
        let text = visit.say(format!("The broker is not available: {error}."), format!("消息代理不可用：{error}。"));
        worries.push(("bad", text));
    }
    if let Some(error) = unknown.into_iter().flatten().next() {
        let text = visit.say(format!("The database did not answer: {error}."), format!("数据库没有应答：{error}。"));
        worries.push(("bad", text));
    }
    if let Ok(letters) = &figures.letters {
        let (parked, waiting) = (letters.parked, letters.waiting);
        if parked > 0 {
            let (parked, waiting) = (view::number(parked), view::number(waiting));
            worries.push((
                "bad",
                visit.say(
                    format!("{parked} messages are parked and need a decision; {waiting} wait behind them."),
                    format!("{parked} 条消息已停放，需要处理；{waiting} 条在其后等待。"),
                ),
            ));
        }
    }
    if let Ok(outbox) = &figures.outbox
        && outbox.oldest_seconds > LATE_SECONDS
    {
        let seconds = view::age(visit, Duration::from_secs_f64(outbox.oldest_seconds));
        let text = visit.say(
            format!("The oldest message has waited in the outbox for {seconds}."),
            format!("发件箱中最早的消息已等待 {seconds}。"),
        );
        worries.push(("warn", text));
    }
    if let Ok(half) = &figures.half
        && half.parked + half.contradicted > 0
    {
        let count = half.parked + half.contradicted;
        let text = visit.say(format!("{count} half messages need a decision."), format!("{count} 条半消息需要处理。"));
        worries.push(("warn", text));
    }
    let worst = worries.iter().map(|(class, _)| *class).min().unwrap_or("good");
    html! {
        div class={ "verdict " (worst) } {
            @if worries.is_empty() {
                p { (visit.say("All is well: nothing needs a decision.", "一切正常：没有需要处理的消息。")) }
            }
            @for (_, text) in &worries { p { (text) } }
        }
    }
}

fn counters(visit: &Visit, figures: &Figures) -> Markup {
    let unknown = || visit.say("unknown", "未知").to_owned();
    let shown = |count: Option<u64>| count.map_or_else(unknown, view::number);
    let letters = figures.letters.as_ref().ok();
    let outbox = figures.outbox.as_ref().ok();
    let half = figures.half.as_ref().ok();
    let class = |count: Option<u64>, class| if count.is_some_and(|count| count > 0) { class } else { "" };
    let parked = letters.map(|stats| stats.parked);
    let oldest =
        outbox.map_or_else(unknown, |stats| view::age(visit, Duration::from_secs_f64(stats.oldest_seconds.max(0.0))));
    let retrying = figures.retrying.as_ref().ok().copied();
    let figure = view::figure;
    html! {
        div.figures {
            (figure(visit.say("parked", "已停放"), &shown(parked), class(parked, "bad"),
                "/console/messages?status=parked"))
            (figure(visit.say("waiting", "等待中"), &shown(letters.map(|stats| stats.waiting)), "",
                "/console/messages?status=waiting"))
            (figure(visit.say("retried automatically", "自动重试"), &shown(letters.map(|stats| stats.delayed)), "",
                "/console/messages?status=delayed"))
            (figure(visit.say("being redriven", "重投中"), &shown(letters.map(|stats| stats.redriving)), "",
                "/console/messages?status=redriving"))
            (figure(visit.say("ignored", "已忽略"), &shown(letters.map(|stats| stats.ignored)), "",
                "/console/messages?status=ignored"))
            (figure(visit.say("in the outbox", "发件箱"), &shown(outbox.map(|stats| stats.pending)), "", "/console/flow"))
            (figure(visit.say("oldest in the outbox", "最早等待"), &oldest, "", "/console/flow"))
            (figure(visit.say("deliveries retrying", "投递重试"), &shown(retrying), class(retrying, "warn"),
                "/console/flow#retrying"))
            (figure(visit.say("half messages undecided", "未决半消息"),
                &shown(half.map(|stats| stats.prepared + stats.parked)), "", "/console/flow#half"))
            (figure(visit.say("published", "已发布"), &shown(outbox.map(|stats| stats.published)), "", "/console/flow"))
        }
    }
}

fn running(visit: &Visit, figures: &Figures) -> Markup {
    let jobs = match &figures.jobs {
        Ok(jobs) => jobs,
        Err(error) => return view::unknown(visit, error),
    };
    let is_active = |job: &&RedriveJob| matches!(job.state, RedriveState::Running | RedriveState::Paused);
    let active: Vec<&RedriveJob> = jobs.iter().filter(is_active).collect();
    html! {
        @if !active.is_empty() {
            h2 { (visit.say("Redrives under way", "进行中的重投")) }
            @for job in active {
                p.job {
                    (view::job_state(visit, job.state)) " "
                    a href={ "/console/redrives/" (job.id) } { (view::clip(&redrives::what(visit, job), 80)) }
                    (redrives::bar(visit, &job.counts))
                }
            }
        }
    }
}

fn newest(visit: &Visit, groups: &[DeadLetterGroup]) -> Markup {
    let mut newest: Vec<&DeadLetterGroup> = groups.iter().collect();
    newest.sort_by_key(|group| std::cmp::Reverse((group.first_seen, group.sample)));
    newest.truncate(NEWEST);
    html! {
        @if newest.is_empty() {
            p.empty { (visit.say("No message is parked.", "没有已停放的消息。")) }
        } @else {
            (failures::table(visit, &newest))
            p { a href="/console/failures" { (visit.say("All failures", "全部故障")) } }
        }
    }
}
