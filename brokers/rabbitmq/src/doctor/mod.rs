//! Doctor checks: settings, queues and bindings that can lose, reorder, duplicate or delay messages.

mod account;
mod bindings;
mod nodes;
mod queues;
mod topics;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Finding, Rank, Result};

use self::account::list_or_report;

use crate::broker::RabbitMq;
use crate::management::{Binding, Exchange, Node, Policy, Queue};

/// The state of one installation, from the management interface.
struct Installation<'a> {
    prefix: &'a str,
    /// Number of replicas that a queue must have.
    replicas: usize,
    /// Whether a key's messages are published one by one.
    one_per_key: bool,
    demands: &'a Demands,
    exchanges: Vec<Exchange>,
    queues: Vec<Queue>,
    bindings: Vec<Binding>,
    policies: Vec<Policy>,
    nodes: Vec<Node>,
}

#[async_trait]
impl Diagnose for RabbitMq {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let Ok(client) = self.management() else { return Ok(vec![account::no_management()]) };
        let mut findings = Vec::new();
        let (prefix, replicas) = (self.options.prefix.as_str(), self.options.replicas);
        let server = Installation {
            prefix,
            replicas,
            one_per_key: self.options.one_per_key,
            demands,
            exchanges: list_or_report("exchanges", client.exchanges().await, &mut findings),
            queues: list_or_report("queues", client.queues().await, &mut findings),
            bindings: list_or_report("bindings", client.bindings().await, &mut findings),
            policies: list_or_report("policies", client.policies().await, &mut findings),
            nodes: list_or_report("nodes", client.nodes().await, &mut findings),
        };
        findings.extend(nodes::findings(&server));
        findings.extend(topics::findings(&server));
        findings.extend(queues::findings(&server));
        // Without the list of bindings every slot would look unbound.
        if !findings.iter().any(|finding| finding.check == account::NOT_VISIBLE) {
            findings.extend(bindings::findings(&server));
        }
        findings.sort_by_key(|finding| finding.rank);
        Ok(findings)
    }
}

fn finding(check: &'static str, rank: Rank, about: &str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding { check, rank, about: about.to_owned(), what: what.into(), mend: mend.into() }
}
