//! Checks of the groups' queues, one function per check.

use std::time::Duration;

use landfall_core::{Finding, Rank, Span};

use super::{Installation, finding};
use crate::management::Queue;
use crate::names;

/// Smallest safe delivery limit: no message is redelivered this often, even over many outages.
const SAFE_DELIVERY_LIMIT: i64 = 100_000;

pub(super) fn findings(server: &Installation<'_>) -> Vec<Finding> {
    let ours = server.queues.iter().filter(|queue| names::group_of(server.prefix, &queue.name).is_some());
    ours.flat_map(|queue| {
        [
            classic(queue),
            durable(queue),
            replicas(queue, server.replicas),
            delivery_limit(queue),
            length_limit(queue, server.one_per_key),
            message_ttl(queue, server.demands.window),
            expires(queue),
            single_active_consumer(queue),
        ]
    })
    .flatten()
    .collect()
}

fn classic(queue: &Queue) -> Option<Finding> {
    let what = format!("the queue has type {}: confirmed messages are on one disk, not always synced", queue.kind);
    let mend = "delete it once it is empty; Landfall creates it again as a quorum queue";
    (queue.kind != "quorum").then(|| finding("rabbitmq.classic-queue", Rank::Loss, &queue.name, what, mend))
}

fn durable(queue: &Queue) -> Option<Finding> {
    let what = "the queue is not durable: a restart of the server deletes it with all its messages";
    let mend = "delete it once it is empty; Landfall creates it again";
    (!queue.durable).then(|| finding("rabbitmq.not-durable", Rank::Loss, &queue.name, what, mend))
}

fn replicas(queue: &Queue, wanted: usize) -> Option<Finding> {
    let members = queue.members.len();
    let what = format!("the queue has {members} of {wanted} replicas: confirmed messages are lost with as many disks");
    let mend = "rabbitmq-queues grow <node> all, or replicas=1 in the broker URL if there is only one server";
    (queue.kind == "quorum" && members < wanted)
        .then(|| finding("rabbitmq.replicas", Rank::Loss, &queue.name, what, mend))
}

fn delivery_limit(queue: &Queue) -> Option<Finding> {
    // A negative number means no limit.
    let limit = queue.number("delivery-limit").filter(|limit| (0..SAFE_DELIVERY_LIMIT).contains(limit))?;
    let what = format!("the server drops a message after {limit} redeliveries, for example after as many outages");
    let mend = "remove delivery-limit from the policy";
    Some(finding("rabbitmq.delivery-limit", Rank::Loss, &queue.name, what, mend))
}

fn length_limit(queue: &Queue, one_per_key: bool) -> Option<Finding> {
    let limit = queue.number("max-length").or_else(|| queue.number("max-length-bytes"))?;
    let overflow = queue.setting("overflow");
    let mend = "remove max-length, max-length-bytes and overflow from the policy, and monitor the disk instead";
    Some(match overflow.as_ref().and_then(|overflow| overflow.as_str()) {
        Some("reject-publish" | "reject-publish-dlx") if one_per_key => {
            let what =
                format!("above {limit} it refuses messages, which wait in the outbox with the rest of their key");
            finding("rabbitmq.length-limit", Rank::Latency, &queue.name, what, mend)
        }
        Some("reject-publish" | "reject-publish-dlx") => {
            let what =
                format!("above {limit} it refuses messages, and may accept later ones of the key once it has space");
            let mend = format!("{mend}; or set one_per_key=true in the broker URL of the relays");
            finding("rabbitmq.length-limit", Rank::Order, &queue.name, what, mend)
        }
        _ => {
            let what = format!("above {limit} it drops the oldest messages");
            finding("rabbitmq.length-limit", Rank::Loss, &queue.name, what, mend)
        }
    })
}

fn message_ttl(queue: &Queue, window: Span) -> Option<Finding> {
    let millis = u64::try_from(queue.number("message-ttl")?).ok()?;
    let ttl = Span::Time(Duration::from_millis(millis));
    let what = format!("messages that are not consumed within {ttl} are dropped, but may be needed for {window}");
    let mend = format!("remove message-ttl from the policy, or set it to {window} or more");
    ttl.short_of(window).map(|_| finding("rabbitmq.message-ttl", Rank::Loss, &queue.name, what, mend))
}

fn expires(queue: &Queue) -> Option<Finding> {
    let millis = u64::try_from(queue.number("expires")?).ok()?;
    let unused = Span::Time(Duration::from_millis(millis));
    let what = format!("the queue is deleted with all its messages after {unused} without a consumer");
    let mend = "remove expires from the policy";
    Some(finding("rabbitmq.queue-expires", Rank::Loss, &queue.name, what, mend))
}

fn single_active_consumer(queue: &Queue) -> Option<Finding> {
    let is_single = queue.arguments.get("x-single-active-consumer").and_then(serde_json::Value::as_bool);
    let what = "several members of the group consume it at once, so messages of one key run concurrently";
    let mend = "delete it once it is empty; Landfall creates it again with x-single-active-consumer=true";
    (is_single != Some(true)).then(|| finding("rabbitmq.single-active-consumer", Rank::Order, &queue.name, what, mend))
}
