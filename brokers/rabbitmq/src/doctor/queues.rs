//! The queues of groups, one check at a time.

use std::time::Duration;

use landfall_core::{Finding, Rank, Span};

use super::{Seen, finding};
use crate::management::Queue;
use crate::names;

/// A message that comes back so often has been through more outages than anybody lives to see.
const ENOUGH_DELIVERIES: i64 = 100_000;

pub(super) fn findings(seen: &Seen<'_>) -> Vec<Finding> {
    let ours = seen.queues.iter().filter(|queue| names::group_of(seen.prefix, &queue.name).is_some());
    ours.flat_map(|queue| {
        [
            classic(queue),
            durable(queue),
            replicas(queue, seen.replicas),
            delivery_limit(queue),
            length_limit(queue, seen.one_per_key),
            message_ttl(queue, seen.demands.window),
            expires(queue),
            single_active_consumer(queue),
        ]
    })
    .flatten()
    .collect()
}

fn classic(queue: &Queue) -> Option<Finding> {
    let what = format!("the queue is of type {}: what it confirmed is on one disk, not always synced", queue.kind);
    let mend = "remove it once it is empty and let Landfall make it, as a quorum queue";
    (queue.kind != "quorum").then(|| finding("rabbitmq.classic-queue", Rank::Loss, &queue.name, what, mend))
}

fn durable(queue: &Queue) -> Option<Finding> {
    let what = "the queue is gone when the server restarts, with everything in it";
    let mend = "remove it once it is empty and let Landfall make it";
    (!queue.durable).then(|| finding("rabbitmq.not-durable", Rank::Loss, &queue.name, what, mend))
}

fn replicas(queue: &Queue, wanted: usize) -> Option<Finding> {
    let members = queue.members.len();
    let what = format!("the queue has {members} of {wanted} members: what it confirmed is lost with as many disks");
    let mend = "rabbitmq-queues grow <node> all, or say replicas=1 in the broker URL if one server is all there is";
    (queue.kind == "quorum" && members < wanted)
        .then(|| finding("rabbitmq.replicas", Rank::Loss, &queue.name, what, mend))
}

fn delivery_limit(queue: &Queue) -> Option<Finding> {
    // Less than nothing means no limit.
    let limit = queue.number("delivery-limit").filter(|limit| (0..ENOUGH_DELIVERIES).contains(limit))?;
    let what = format!("the server drops a message that came back more than {limit} times, as after as many outages");
    let mend = "take delivery-limit out of the policy";
    Some(finding("rabbitmq.delivery-limit", Rank::Loss, &queue.name, what, mend))
}

fn length_limit(queue: &Queue, one_per_key: bool) -> Option<Finding> {
    let limit = queue.number("max-length").or_else(|| queue.number("max-length-bytes"))?;
    let overflow = queue.setting("overflow");
    let mend = "take max-length, max-length-bytes and overflow out of the policy, and watch the disk in their place";
    Some(match overflow.as_ref().and_then(|overflow| overflow.as_str()) {
        Some("reject-publish" | "reject-publish-dlx") if one_per_key => {
            let what = format!("beyond {limit} it refuses messages, which wait in the outbox with all of their key");
            finding("rabbitmq.length-limit", Rank::Latency, &queue.name, what, mend)
        }
        Some("reject-publish" | "reject-publish-dlx") => {
            let what = format!("beyond {limit} it refuses messages and takes later ones when there is room again");
            let mend = format!("{mend}; or say one_per_key=true in the broker URL of those who publish");
            finding("rabbitmq.length-limit", Rank::Order, &queue.name, what, mend)
        }
        _ => {
            let what = format!("beyond {limit} it drops the oldest messages");
            finding("rabbitmq.length-limit", Rank::Loss, &queue.name, what, mend)
        }
    })
}

fn message_ttl(queue: &Queue, window: Span) -> Option<Finding> {
    let millis = u64::try_from(queue.number("message-ttl")?).ok()?;
    let kept = Span::Time(Duration::from_millis(millis));
    let what = format!("a message that nobody took within {kept} is dropped; {window} may pass until it comes again");
    let mend = format!("take message-ttl out of the policy, or set it to {window} or more");
    kept.short_of(window).map(|_| finding("rabbitmq.message-ttl", Rank::Loss, &queue.name, what, mend))
}

fn expires(queue: &Queue) -> Option<Finding> {
    let millis = u64::try_from(queue.number("expires")?).ok()?;
    let unused = Span::Time(Duration::from_millis(millis));
    let what = format!("the queue is removed, with everything in it, when no consumer came for {unused}");
    let mend = "take expires out of the policy";
    Some(finding("rabbitmq.queue-expires", Rank::Loss, &queue.name, what, mend))
}

fn single_active_consumer(queue: &Queue) -> Option<Finding> {
    let is_single = queue.arguments.get("x-single-active-consumer").and_then(serde_json::Value::as_bool);
    let what = "several members of the group read it at once, and messages of one key run side by side";
    let mend = "remove it once it is empty and let Landfall make it, with x-single-active-consumer=true";
    (is_single != Some(true)).then(|| finding("rabbitmq.single-active-consumer", Rank::Order, &queue.name, what, mend))
}
