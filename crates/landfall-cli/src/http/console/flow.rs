//! What is on its way: outbox, relays and leases, topics and groups, retried deliveries, half messages.

use axum::response::Response;
use landfall::adapter::{LeaseName, Shard};
use landfall::{
    DeliveryFilter, GroupName, HalfMessageFilter, HalfMessageRow, HalfMessageStats, HalfState, Key, OutboxFilter,
    OutboxRow, OutboxStats, RetryingDelivery,
};
use maud::{Markup, html};

use super::access::Visit;
use super::page::{Page, Visitor};
use super::view;
use crate::http::problem::Problem;
use crate::http::{Shared, State};
use crate::topics::TopicDetails;

const MAX_ROWS: usize = 50;

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let (outbox, deliveries) = (OutboxFilter::default(), DeliveryFilter::default());
    let half_filter = HalfMessageFilter { state: Some(HalfState::Parked), ..HalfMessageFilter::default() };
    let (stats, rows, retried, half_stats, half_rows, leases) = tokio::join!(
        state.view.stats(),
        state.view.list(&outbox, MAX_ROWS),
        state.deliveries.retrying(&deliveries, MAX_ROWS),
        state.half.half_message_stats(),
        state.half.find_half_messages(&half_filter, MAX_ROWS),
        leases(&state),
    );
    let title = visit.say("Flow", "流转");
    let main = html! {
        h1 { (title) }
        div data-live="outbox" { (self::outbox(&visit, &stats, &rows)) }
        div data-live="leases" { (relays(&visit, &leases)) }
        div data-live="topics" { (topics(&visit, &state.broker.topics())) }
        div data-live="retrying" id="retrying" { (retrying(&visit, &retried)) }
        div data-live="half" id="half" { (half(&visit, &half_stats, &half_rows)) }
    };
    let (twin, command) = (Some("/v1/deliveries".into()), Some("landfall outbox stats; landfall dlq retrying".into()));
    Ok(Page { title: title.into(), section: "/console/flow", main, twin, command }.render(&visit))
}

fn outbox(visit: &Visit, stats: &landfall::Result<OutboxStats>, rows: &landfall::Result<Vec<OutboxRow>>) -> Markup {
    html! {
        section {
            h2 { (visit.say("Outbox", "发件箱")) }
            @match stats {
                Ok(stats) => dl.inline {
                    dt { (visit.say("pending", "待发")) } dd { (view::number(stats.pending)) }
                    dt { (visit.say("retrying", "重试中")) } dd { (view::number(stats.retrying)) }
                    dt { (visit.say("parked", "已停放")) } dd { (view::number(stats.parked)) }
                    dt { (visit.say("published", "已发布")) } dd { (view::number(stats.published)) }
                    dt { (visit.say("oldest", "最早等待")) } dd {
                        (view::age(visit, std::time::Duration::from_secs_f64(stats.oldest_seconds.max(0.0)))) }
                },
                Err(error) => (view::unknown(visit, error)),
            }
            @match rows {
                Ok(rows) if rows.is_empty() => p.empty { (visit.say("The outbox is empty.", "发件箱为空。")) },
                Ok(rows) => (view::scroll(visit.say("Outbox", "发件箱"), &outbox_table(visit, rows))),
                Err(error) => (view::unknown(visit, error)),
            }
        }
    }
}

fn outbox_table(visit: &Visit, rows: &[OutboxRow]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { (visit.say("Message", "消息")) } th scope="col" { (visit.say("Topic, key", "主题与键")) }
                th scope="col" { (visit.say("State", "状态")) } th.number scope="col" { (visit.say("Attempts", "尝试")) }
                th scope="col" { (visit.say("Last error", "最近错误")) } th scope="col" { (visit.say("Enqueued", "写入")) }
            } }
            tbody { @for row in rows {
                tr {
                    td { code { (row.message_id) } }
                    td { (row.topic) div {
                        (view::key_link(row.topic.as_str(), row.key.as_ref().map(Key::as_str), None)) } }
                    td { (row.state.as_str()) } td.number { (row.attempts) }
                    td.wide { div.error { (view::clip(row.last_error.as_deref().unwrap_or_default(), 160)) } }
                    td { (view::time(visit, row.created_at)) }
                }
            } }
        }
    }
}

/// Held leases of shards, held leases of relays, and the holders that lost theirs.
type Leases = landfall::Result<(Vec<LeaseName>, Vec<LeaseName>, Vec<String>)>;

async fn leases(state: &State) -> Leases {
    let (shards, relays, lapsed) = tokio::try_join!(
        state.leases.held(Shard::LEASES),
        state.leases.held("relay/"),
        state.leases.lapsed(Shard::LEASES),
    )?;
    Ok((shards, relays, lapsed.into_iter().map(|holder| holder.to_string()).collect()))
}

fn relays(visit: &Visit, leases: &Leases) -> Markup {
    html! {
        section {
            h2 { (visit.say("Relays and leases", "中继与租约")) }
            @match leases {
                Ok((shards, relays, lapsed)) => {
                    dl.inline {
                        dt { (visit.say("live relays", "存活的中继")) } dd { (relays.len()) }
                        dt { (visit.say("shards with a lease", "持有租约的分片")) } dd { (shards.len()) }
                        dt { (visit.say("expired leases", "过期租约")) } dd { (lapsed.len()) }
                    }
                    @for holder in lapsed { p.problem { (visit.say("No heartbeat from ", "没有心跳：")) (holder) } }
                }
                Err(error) => (view::unknown(visit, error)),
            }
        }
    }
}

fn topics(visit: &Visit, topics: &landfall::Result<Vec<TopicDetails>>) -> Markup {
    html! {
        section {
            h2 { (visit.say("Topics and groups", "主题与消费组")) }
            @match topics {
                Ok(topics) if topics.is_empty() => p.empty { (visit.say(
                    "This broker reports no topics to the daemon, or there are none yet; use the broker's own tools.",
                    "此消息代理不向守护进程报告主题，或尚无主题；请使用其自带工具。",
                )) },
                Ok(topics) => (view::scroll(visit.say("Topics", "主题"), &topic_table(visit, topics))),
                Err(error) => (view::unknown(visit, error)),
            }
        }
    }
}

fn topic_table(visit: &Visit, topics: &[TopicDetails]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { (visit.say("Topic", "主题")) } th.number scope="col" { (visit.say("Partitions", "分区")) }
                th.number scope="col" { (visit.say("Messages", "消息")) } th.number scope="col" {
                    (visit.say("Skew", "倾斜")) }
                th scope="col" { (visit.say("Groups, unfinished messages", "消费组与积压")) }
            } }
            tbody { @for topic in topics {
                tr {
                    td { (topic.topic) } td.number { (topic.partitions.len()) } td.number {
                        (view::number(topic.messages)) }
                    td.number { (format!("{:.1}", topic.skew)) }
                    td { @for group in &topic.groups { div { (group.group) ": " (view::number(group.lag)) } } }
                }
            } }
        }
    }
}

pub(super) fn retrying(visit: &Visit, rows: &landfall::Result<Vec<RetryingDelivery>>) -> Markup {
    let title = visit.say("Deliveries that are retried", "重试中的投递");
    html! {
        section {
            h2 { (title) }
            @match rows {
                Ok(rows) if rows.is_empty() => p.empty { (visit.say("No delivery is retried.", "没有重试中的投递。")) },
                Ok(rows) => (view::scroll(title, &html! {
                    table {
                        thead { tr {
                            th scope="col" { (visit.say("Message", "消息")) } th scope="col" {
                                (visit.say("Topic, key", "主题与键")) }
                            th scope="col" { (visit.say("Error", "错误")) } th.number scope="col" {
                                (visit.say("Attempts", "尝试")) }
                            th scope="col" { (visit.say("Next", "下次")) }
                        } }
                        tbody { @for row in rows {
                            tr {
                                td { code { (row.message_id) } }
                                td { (row.topic) " → " (row.group) div {
                                    (view::key_link(row.topic.as_str(), row.key.as_ref().map(Key::as_str),
                                        Some(GroupName::as_str(&row.group)))) } }
                                td.wide { code { (row.error_code) } div.error { (view::clip(&row.error, 160)) } }
                                td.number { (row.attempts) } td { (view::time(visit, row.next_attempt)) }
                            }
                        } }
                    }
                })),
                Err(error) => (view::unknown(visit, error)),
            }
        }
    }
}

fn half(
    visit: &Visit,
    stats: &landfall::Result<HalfMessageStats>,
    rows: &landfall::Result<Vec<HalfMessageRow>>,
) -> Markup {
    let title = visit.say("Half messages", "半消息");
    html! {
        section {
            h2 { (title) }
            @match stats {
                Ok(stats) => dl.inline {
                    dt { (visit.say("prepared", "已预备")) } dd { (view::number(stats.prepared)) }
                    dt { (visit.say("parked", "已停放")) } dd { (view::number(stats.parked)) }
                    dt { (visit.say("contradicted", "矛盾")) } dd { (view::number(stats.contradicted)) }
                    dt { (visit.say("commits without a message", "无消息的提交")) } dd { (view::number(stats.early_commits)) }
                },
                Err(error) => (view::unknown(visit, error)),
            }
            @match rows {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => (view::scroll(title, &html! {
                    table {
                        thead { tr {
                            th scope="col" { "ID" } th scope="col" { (visit.say("About", "业务")) }
                            th.number scope="col" { (visit.say("Check-backs", "回查")) } th scope="col" {
                                (visit.say("Last answer", "最近答复")) }
                            th scope="col" { (visit.say("Prepared", "预备")) }
                        } }
                        tbody { @for row in rows {
                            tr {
                                td { code { (row.id) } } td.wide { bdi { (row.business_type) " " (row.business_id) } }
                                td.number { (row.checks) } td.wide { (row.last_answer.as_deref().unwrap_or_default()) }
                                td { (view::time(visit, row.prepared_at)) }
                            }
                        } }
                    }
                })),
                Err(error) => (view::unknown(visit, error)),
            }
        }
    }
}
