//! The servers of the cluster.

use landfall_core::{Finding, Rank};

use super::{Seen, finding};
use crate::management::Node;

pub(super) fn findings(seen: &Seen<'_>) -> Vec<Finding> {
    seen.nodes.iter().flat_map(|node| [memory(node), disk(node), down(node)]).flatten().collect()
}

fn memory(node: &Node) -> Option<Finding> {
    let what = "it uses more memory than it may and takes no messages until it uses less";
    let mend = "raise vm_memory_high_watermark, or find out what is not being consumed";
    node.mem_alarm.then(|| finding("rabbitmq.memory-alarm", Rank::Latency, &node.name, what, mend))
}

fn disk(node: &Node) -> Option<Finding> {
    let what = "it has less disk left than it wants to keep and takes no messages until there is more";
    let mend = "make room on its disk, or lower disk_free_limit if that much is never needed";
    node.disk_free_alarm.then(|| finding("rabbitmq.disk-alarm", Rank::Latency, &node.name, what, mend))
}

fn down(node: &Node) -> Option<Finding> {
    let what = "it does not run; queues with most of their members there take and deliver nothing";
    let mend = "start it, or remove it from the cluster: rabbitmqctl forget_cluster_node";
    (!node.running).then(|| finding("rabbitmq.node-down", Rank::Latency, &node.name, what, mend))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_run_is_found_and_one_that_does_is_not() {
        let node = |text: &str| serde_json::from_str::<Node>(text).unwrap();
        assert_eq!(down(&node(r#"{"name":"a","running":true}"#)), None);
        assert_eq!(down(&node(r#"{"name":"a","running":false}"#)).unwrap().check, "rabbitmq.node-down");
    }
}
