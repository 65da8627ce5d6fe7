//! The rule of one key: whether redrive jobs leave it alone, or never block it.

use axum::Extension;
use axum::response::{IntoResponse, Redirect, Response};
use landfall::{Key, KeyRule, KeyRuleKind, Timestamp, TopicName};
use maud::{Markup, html};

use super::access::{Form, Visit};
use super::page::Visitor;
use super::query::Query;
use super::view;
use crate::config::Role;
use crate::http::dlq::{MAX_REASON_CHARACTERS, detached, words};
use crate::http::problem::Problem;
use crate::http::{Shared, State};

/// Rules that are read to find the one of a key.
const MAX_RULES: usize = 10_000;

pub(super) async fn find(state: &State, topic: &TopicName, key: &Key) -> landfall::Result<Option<KeyRule>> {
    let rules = state.key_rules.key_rules(MAX_RULES).await?;
    Ok(rules.into_iter().find(|rule| rule.topic == *topic && rule.key == *key))
}

/// What another operator may change meanwhile.
fn seen(rule: Option<&KeyRule>) -> String {
    rule.map_or_else(|| "none".to_owned(), |rule| format!("{} {}", rule.rule.as_str(), rule.since))
}

/// Shows the rule, and the form that changes it.
pub(super) fn section(visit: &Visit, topic: &TopicName, key: &Key, rule: Option<&KeyRule>) -> Markup {
    let is = |kind| rule.is_some_and(|rule| rule.rule == kind);
    html! {
        @if let Some(rule) = rule {
            p.problem {
                @if rule.rule == KeyRuleKind::Blocked { (visit.say("Redrive jobs skip this key", "重投任务会跳过此键")) }
                @else { (visit.say("Failed redrives do not block this key", "重投失败不会阻止此键")) }
                @if let Some(until) = rule.until { (visit.say(", until ", "，直到 ")) (view::time(visit, until)) }
                ": " (rule.reason) " (" bdi { (rule.actor) } ")"
            }
        }
        @if visit.may(Role::Operator) {
            section.choices aria-label=(visit.say("Rule of the key", "键的规则")) { details {
                summary { (visit.say("Block or allow redrives of this key", "阻止或允许重投此键")) }
                form.decide method="post" action="/console/keys/rule" {
                    (view::form_token(visit))
                    input type="hidden" name="topic" value=(topic);
                    input type="hidden" name="key" value=(key);
                    input type="hidden" name="seen" value=(seen(rule));
                    p { (visit.say("Jobs skip a blocked key. An allowed key is never blocked automatically.",
                        "任务会跳过被阻止的键。被允许的键不会自动阻止。")) }
                    (view::period(visit))
                    label { span { (visit.say("Reason", "原因")) } input type="text" name="reason" required
                        maxlength=(MAX_REASON_CHARACTERS) autocomplete="off"; }
                    p.actions {
                        @if !is(KeyRuleKind::Blocked) {
                            button type="submit" name="verb" value="blocked" { (visit.say("Block", "阻止")) } }
                        @if !is(KeyRuleKind::Allowed) {
                            button type="submit" name="verb" value="allowed" { (visit.say("Allow", "允许")) } }
                        @if rule.is_some() {
                            button type="submit" name="verb" value="none" { (visit.say("Remove the rule", "删除规则")) } }
                    }
                }
            } }
        }
    }
}

pub(super) async fn change(
    axum::extract::State(state): Shared,
    visit: Visitor,
    form: Extension<Form>,
) -> Result<Response, Problem> {
    let topic = TopicName::new(form.raw("topic").unwrap_or_default())?;
    let key = Key::new(form.raw("key").unwrap_or_default())?;
    let reason = words("reason", form.get("reason").unwrap_or_default(), MAX_REASON_CHARACTERS)?.to_owned();
    let known = find(&state, &topic, &key).await?;
    if form.get("seen").unwrap_or_default() != seen(known.as_ref()) {
        return Err(Problem::changed(format!("the rule of key {key} was changed since you looked")));
    }
    let to = Query::default().with("topic", &topic).with("key", &key).to("/console/keys");
    let (rules, actor) = (state.key_rules.clone(), visit.actor());
    let kind = match form.get("verb") {
        Some("none") => {
            detached(async move { rules.remove_key_rule(&topic, &key, &reason, &actor).await }).await?;
            return Ok(Redirect::to(&to).into_response());
        }
        Some(verb) => verb.parse::<KeyRuleKind>()?,
        None => return Err(Problem::invalid("verb must be blocked, allowed or none")),
    };
    let (until, since) = (Some(view::end_of_period(&form)?), Timestamp::now());
    let rule = KeyRule { topic, key, rule: kind, until, reason, actor, since };
    detached(async move { rules.set_key_rule(&rule).await }).await?;
    Ok(Redirect::to(&to).into_response())
}
