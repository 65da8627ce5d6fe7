//! The doctor's part.

use async_trait::async_trait;
use landfall_core::{Demands, Examine, Finding, Rank, Result};

use crate::broker::RabbitMq;

#[async_trait]
impl Examine for RabbitMq {
    async fn examine(&self, _demands: &Demands) -> Result<Vec<Finding>> {
        let client = self.management()?;
        let mut findings = Vec::new();
        for node in client.nodes().await? {
            if node.mem_alarm || node.disk_free_alarm || !node.running {
                findings.push(Finding { check: "rabbitmq.alarm", rank: Rank::Latency, about: node.name, what: String::new(), mend: String::new() });
            }
        }
        for binding in client.bindings().await? { let _ = (binding.source, binding.destination, binding.routing_key); }
        Ok(findings)
    }
}
