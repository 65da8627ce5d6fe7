//! Checks of the exchanges of topics and groups.

use landfall_core::{Finding, Rank};

use super::{Installation, finding};
use crate::management::Exchange;
use crate::names;

pub(super) fn findings(server: &Installation<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for exchange in &server.exchanges {
        if names::topic_of(server.prefix, &exchange.name).is_some() {
            findings.extend(kind(exchange, "fanout"));
            findings.extend(durable(exchange));
            findings.extend(alternate(server, exchange));
            findings.extend(no_group(server, exchange));
        } else if is_group(server, exchange) {
            findings.extend(kind(exchange, "direct"));
            findings.extend(durable(exchange));
        }
    }
    findings
}

/// Whether the exchange is that of a group: `orders:stock`, and not `orders:stock:of:4`.
pub(super) fn is_group(server: &Installation<'_>, exchange: &Exchange) -> bool {
    let name = exchange.name.strip_prefix(server.prefix).unwrap_or_default();
    name.matches(names::SEPARATOR).count() == 1 && names::group_of(server.prefix, &exchange.name).is_some()
}

fn kind(exchange: &Exchange, expected: &str) -> Option<Finding> {
    let what =
        format!("the exchange has type {}, not {expected}: groups miss messages or receive duplicates", exchange.kind);
    let mend = "delete the exchange; Landfall creates it again";
    (exchange.kind != expected).then(|| finding("rabbitmq.exchange-type", Rank::Loss, &exchange.name, what, mend))
}

fn durable(exchange: &Exchange) -> Option<Finding> {
    let what = "the exchange is not durable: a restart of the server deletes it and its bindings";
    let mend = "delete it; Landfall creates it again as a durable exchange";
    (!exchange.durable).then(|| finding("rabbitmq.not-durable", Rank::Loss, &exchange.name, what, mend))
}

/// An unroutable message must return to the relay.
fn alternate(server: &Installation<'_>, exchange: &Exchange) -> Option<Finding> {
    let by_policy = server.policies.iter().any(|policy| {
        exchange.policy.as_deref() == Some(policy.name.as_str()) && policy.definition.contains_key("alternate-exchange")
    });
    let what = "an alternate exchange takes unroutable messages: they count as accepted, and no group receives them";
    let mend = "remove alternate-exchange from the policy, or create the exchange without it";
    (by_policy || exchange.arguments.contains_key("alternate-exchange"))
        .then(|| finding("rabbitmq.alternate-exchange", Rank::Loss, &exchange.name, what, mend))
}

fn no_group(server: &Installation<'_>, exchange: &Exchange) -> Option<Finding> {
    let what = "no group has subscribed yet; messages wait in the outbox until one does";
    let mend = "start a consumer of the topic once, or delete the topic";
    (!server.bindings.iter().any(|binding| binding.source == exchange.name))
        .then(|| finding("rabbitmq.no-group", Rank::Latency, &exchange.name, what, mend))
}
