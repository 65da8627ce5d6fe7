//! Checks of the consumers of a group.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Info};
use landfall_core::{Finding, Rank};

use crate::subscriber::claim::is_a_claim;
use crate::topic::Topic;

/// Shortest safe `ack_wait`. A slow handler asks for more time, and on a busy machine the request may arrive late.
const MIN_ACK_WAIT: Duration = Duration::from_secs(5);

/// Checks one consumer. Consumers that Landfall did not create have no findings.
pub(super) fn diagnose(topic: &Topic, info: &Info) -> Vec<Finding> {
    if !is_a_claim(info) {
        return Vec::new();
    }
    let about = format!("consumer {} of topic {}", info.name, topic.name);
    let finding = |check, rank, what: String, mend: String| Finding { check, rank, about: about.clone(), what, mend };
    let (config, mut findings) = (&info.config, Vec::new());
    if config.max_deliver > 0 {
        let what = format!("The server drops a message after {} deliveries.", config.max_deliver);
        let mend = format!("nats consumer edit {} {} --max-deliver=-1", topic.stream, info.name);
        findings.push(finding("nats.max-deliver", Rank::Loss, what, mend));
    }
    if config.ack_wait < MIN_ACK_WAIT && config.ack_policy != AckPolicy::None {
        let what = format!("The server redelivers a message that is not acknowledged within {:?}.", config.ack_wait);
        findings.push(finding("nats.ack-wait", Rank::Duplicates, what, "ack_wait=60s in the broker URL".into()));
    }
    findings
}
