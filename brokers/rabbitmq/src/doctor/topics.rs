//! The exchanges of topics and groups.

use landfall_core::{Finding, Rank};

use super::{Seen, finding};
use crate::management::Exchange;
use crate::names;

pub(super) fn findings(seen: &Seen<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for exchange in &seen.exchanges {
        if names::topic_of(seen.prefix, &exchange.name).is_some() {
            findings.extend(kind(exchange, "fanout"));
            findings.extend(durable(exchange));
            findings.extend(alternate(seen, exchange));
            findings.extend(no_group(seen, exchange));
        } else if is_group(seen, exchange) {
            findings.extend(kind(exchange, "direct"));
            findings.extend(durable(exchange));
        }
    }
    findings
}

/// `orders:stock`, and not `orders:stock:of:4`.
pub(super) fn is_group(seen: &Seen<'_>, exchange: &Exchange) -> bool {
    let name = exchange.name.strip_prefix(seen.prefix).unwrap_or_default();
    name.matches(names::SEPARATOR).count() == 1 && names::group_of(seen.prefix, &exchange.name).is_some()
}

fn kind(exchange: &Exchange, expected: &str) -> Option<Finding> {
    let what = format!("the exchange is of type {} and not {expected}: groups get too little, or twice", exchange.kind);
    let mend = "remove the exchange and let Landfall make it";
    (exchange.kind != expected).then(|| finding("rabbitmq.exchange-type", Rank::Loss, &exchange.name, what, mend))
}

fn durable(exchange: &Exchange) -> Option<Finding> {
    let what = "the exchange is gone when the server restarts, and its bindings with it";
    let mend = "remove it and make it with durable=true, or let Landfall make it";
    (!exchange.durable).then(|| finding("rabbitmq.not-durable", Rank::Loss, &exchange.name, what, mend))
}

/// What nobody is bound for must come back to the relay.
fn alternate(seen: &Seen<'_>, exchange: &Exchange) -> Option<Finding> {
    let by_policy = seen.policies.iter().any(|policy| {
        exchange.policy.as_deref() == Some(policy.name.as_str()) && policy.definition.contains_key("alternate-exchange")
    });
    let what = "an alternate exchange takes what no group is bound for: it counts as accepted, and no group has it";
    let mend = "take alternate-exchange out of the policy, or make the exchange without it";
    (by_policy || exchange.arguments.contains_key("alternate-exchange"))
        .then(|| finding("rabbitmq.alternate-exchange", Rank::Loss, &exchange.name, what, mend))
}

fn no_group(seen: &Seen<'_>, exchange: &Exchange) -> Option<Finding> {
    let what = "no group subscribed yet; what is published waits in the outbox until one does";
    let mend = "start a consumer of the topic once, or remove the topic";
    (!seen.bindings.iter().any(|binding| binding.source == exchange.name))
        .then(|| finding("rabbitmq.no-group", Rank::Latency, &exchange.name, what, mend))
}
