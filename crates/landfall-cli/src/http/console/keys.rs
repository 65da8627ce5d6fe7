//! The queue of one key: what holds it, and what waits, in order.

use axum::response::Response;
use landfall::{DeadLetterFilter, DeliveryFilter, GroupName, Key, TopicName};
use maud::html;

use super::page::{Page, Visitor};
use super::query::Query;
use super::{flow, key_rule, messages, view};
use crate::http::Shared;
use crate::http::problem::Problem;

const MAX_ROWS: usize = 200;

pub(super) async fn page(axum::extract::State(state): Shared, visit: Visitor) -> Result<Response, Problem> {
    let query = Query::of(&visit.uri);
    let (topic, key) = (query.get("topic"), query.get("key"));
    let (topic, key) = (topic.map(TopicName::new).transpose()?, key.map(Key::new).transpose()?);
    let group = query.get("group").map(GroupName::new).transpose()?;
    let title = visit.say("Key", "键");
    let form = html! {
        form.filter method="get" action="/console/keys" role="search" {
            (view::field(&query, "topic", visit.say("Topic", "主题"), ""))
            (view::field(&query, "key", visit.say("Key", "键"), ""))
            (view::field(&query, "group", visit.say("Consumer group (optional)", "消费组（可选）"), ""))
            button type="submit" { (visit.say("Show", "查看")) }
        }
    };
    let section = "/console/messages";
    let (Some(topic), Some(key)) = (topic, key) else {
        let main =
            html! { h1 { (title) } (form) p.empty { (visit.say("Name a topic and a key.", "请填写主题和键。")) } };
        return Ok(Page { title: title.into(), section, main, twin: None, command: None }.render(&visit));
    };
    let filter = DeadLetterFilter {
        topic: Some(topic.clone()),
        key: Some(key.clone()),
        group: group.clone(),
        open: true,
        ..DeadLetterFilter::default()
    };
    let deliveries = DeliveryFilter { topic: Some(topic.clone()), key: Some(key.clone()), group, message_id: None };
    let (letters, retrying, rule) = tokio::try_join!(
        state.dead_letters.list_letters(&filter, MAX_ROWS),
        state.deliveries.retrying(&deliveries, MAX_ROWS),
        key_rule::find(&state, &topic, &key),
    )?;
    let main = html! {
        h1 { (title) " " bdi { (key) } }
        (form)
        (key_rule::section(&visit, &topic, &key, rule.as_ref()))
        @if letters.is_empty() && retrying.is_empty() {
            p.empty { (visit.say("Nothing of this key waits here.", "此键没有等待的消息。")) }
        }
        @if !letters.is_empty() {
            h2 { (visit.say("Queue, the oldest first", "队列（从旧到新）")) }
            p.muted { (visit.say(
                "Messages of a key take effect in this order. One that waits follows once those before it are done.",
                "同一键的消息按此顺序生效。前面的消息完成后，等待的消息会自动继续。",
            )) }
            (view::scroll(title, &messages::table(&visit, &letters, false)))
            @if letters.len() == MAX_ROWS { p.muted { (visit.say("Only the oldest are shown.", "只显示最早的部分。")) } }
        }
        @if !retrying.is_empty() { (flow::retrying(&visit, &Ok(retrying))) }
    };
    let query = query.with("status", "open");
    let (twin, command) = (query.to("/v1/dead-letters"), format!("landfall dlq list{}", query.flags()));
    Ok(Page { title: format!("{title} {key}"), section, main, twin: Some(twin), command: Some(command) }.render(&visit))
}
