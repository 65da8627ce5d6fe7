//! Whether every group gets everything, once.

use landfall_core::{Finding, Rank};

use super::topics::is_group;
use super::{Seen, finding};
use crate::management::Exchange;
use crate::names::{self, SLOTS};

const AGAIN: &str = "let a member of the group subscribe with create=true, which binds what is missing";

pub(super) fn findings(seen: &Seen<'_>) -> Vec<Finding> {
    let groups = seen.exchanges.iter().filter(|exchange| is_group(seen, exchange));
    groups.flat_map(|group| [unbound(seen, group), missing(seen, group), twice(seen, group)]).flatten().collect()
}

/// The group itself, from its topic.
fn unbound(seen: &Seen<'_>, group: &Exchange) -> Option<Finding> {
    let (topic, _) = names::group_of(seen.prefix, &group.name)?;
    let topic = format!("{}{topic}", seen.prefix);
    let is_bound = seen.bindings.iter().any(|bound| bound.source == topic && bound.destination == group.name);
    let what = format!("the group is not bound to {topic}: what is published now never reaches it");
    (!is_bound).then(|| finding("rabbitmq.group-unbound", Rank::Loss, &group.name, what, AGAIN))
}

fn bound(seen: &Seen<'_>, group: &Exchange, slot: u32) -> usize {
    let slot = slot.to_string();
    seen.bindings.iter().filter(|bound| bound.source == group.name && bound.routing_key == slot).count()
}

fn missing(seen: &Seen<'_>, group: &Exchange) -> Option<Finding> {
    let missing = (0..SLOTS).filter(|slot| bound(seen, group, *slot) == 0).count();
    let what = format!("{missing} of {SLOTS} slots have no queue: their messages leave their place in the order");
    (missing > 0).then(|| finding("rabbitmq.slot-unbound", Rank::Order, &group.name, what, AGAIN))
}

fn twice(seen: &Seen<'_>, group: &Exchange) -> Option<Finding> {
    let twice = (0..SLOTS).filter(|slot| bound(seen, group, *slot) > 1).count();
    let what = format!("{twice} of {SLOTS} slots have several queues: their messages are delivered side by side");
    let mend = "remove the bindings that Landfall did not make";
    (twice > 0).then(|| finding("rabbitmq.slot-twice", Rank::Order, &group.name, what, mend))
}
