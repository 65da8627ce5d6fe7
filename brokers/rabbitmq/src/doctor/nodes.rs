//! Checks of the cluster's nodes.

use landfall_core::{Finding, Rank};

use super::{Installation, finding};
use crate::management::Node;

pub(super) fn findings(server: &Installation<'_>) -> Vec<Finding> {
    server.nodes.iter().flat_map(|node| [memory(node), disk(node), down(node)]).flatten().collect()
}

fn memory(node: &Node) -> Option<Finding> {
    let what = "its memory alarm is active: it accepts no messages until it uses less memory";
    let mend = "raise vm_memory_high_watermark, or find out what is not being consumed";
    node.mem_alarm.then(|| finding("rabbitmq.memory-alarm", Rank::Latency, &node.name, what, mend))
}

fn disk(node: &Node) -> Option<Finding> {
    let what = "its disk alarm is active: it accepts no messages until more disk space is free";
    let mend = "free disk space, or lower disk_free_limit if that much is never needed";
    node.disk_free_alarm.then(|| finding("rabbitmq.disk-alarm", Rank::Latency, &node.name, what, mend))
}

fn down(node: &Node) -> Option<Finding> {
    let what = "it is down; queues that have lost their majority accept and deliver nothing";
    let mend = "start it, or remove it from the cluster: rabbitmqctl forget_cluster_node";
    (!node.running).then(|| finding("rabbitmq.node-down", Rank::Latency, &node.name, what, mend))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_down_is_a_finding() {
        let node = |text: &str| serde_json::from_str::<Node>(text).unwrap();
        assert_eq!(down(&node(r#"{"name":"a","running":true}"#)), None);
        assert_eq!(down(&node(r#"{"name":"a","running":false}"#)).unwrap().check, "rabbitmq.node-down");
    }
}
