//! The doctor's part: what the server's settings, queues and bindings can do to messages.

mod account;
mod bindings;
mod nodes;
mod queues;
mod topics;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, Finding, Rank, Result};

use crate::broker::RabbitMq;
use crate::management::{Binding, Exchange, Node, Policy, Queue};

/// Everything about one installation, as the management interface tells it.
struct Seen<'a> {
    prefix: &'a str,
    /// Members that a queue must have.
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
        let mut seen = Seen {
            prefix,
            replicas,
            one_per_key: self.options.one_per_key,
            demands,
            exchanges: Vec::new(),
            queues: Vec::new(),
            bindings: Vec::new(),
            policies: Vec::new(),
            nodes: Vec::new(),
        };
        account::look("exchanges", client.exchanges().await, &mut seen.exchanges, &mut findings);
        account::look("queues", client.queues().await, &mut seen.queues, &mut findings);
        account::look("bindings", client.bindings().await, &mut seen.bindings, &mut findings);
        account::look("policies", client.policies().await, &mut seen.policies, &mut findings);
        account::look("nodes", client.nodes().await, &mut seen.nodes, &mut findings);
        findings.extend(nodes::findings(&seen));
        findings.extend(topics::findings(&seen));
        findings.extend(queues::findings(&seen));
        // Without the bindings every slot would seem to be missing.
        if !findings.iter().any(|finding| finding.check == account::NOT_VISIBLE) {
            findings.extend(bindings::findings(&seen));
        }
        findings.sort_by_key(|finding| finding.rank);
        Ok(findings)
    }
}

fn finding(check: &'static str, rank: Rank, about: &str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
    Finding { check, rank, about: about.to_owned(), what: what.into(), mend: mend.into() }
}
