//! What the consumers of a group are set to.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Info};
use landfall_core::{Finding, Rank};

use crate::claim::is_a_claim;
use crate::topic::Topic;

/// A handler that takes longer asks for more time, which may come late on a busy machine.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);

/// Consumers of others are theirs.
pub(super) fn diagnose(topic: &Topic, info: &Info) -> Vec<Finding> {
    if !is_a_claim(info) {
        return Vec::new();
    }
    let about = format!("consumer {} of topic {}", info.name, topic.name);
    let found = |check, rank, what: String, mend: String| Finding { check, rank, about: about.clone(), what, mend };
    let (config, mut findings) = (&info.config, Vec::new());
    if config.max_deliver > 0 {
        let what =
            format!("The server gives up on a message after {} deliveries and goes on without it.", config.max_deliver);
        let mend = format!("nats consumer edit {} {} --max-deliver=-1", topic.stream, info.name);
        findings.push(found("nats.max-deliver", Rank::Loss, what, mend));
    }
    if config.ack_wait < SHORTEST_WAIT && config.ack_policy != AckPolicy::None {
        let what = format!("The server sends again what is not finished within {:?}.", config.ack_wait);
        findings.push(found("nats.ack-wait", Rank::Duplicates, what, "ack_wait=60s in the broker URL".into()));
    }
    findings
}
