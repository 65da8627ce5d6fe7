//! Checks of the bindings: every group must receive every message once.

use landfall_core::{Finding, Rank};

use super::topics::is_group;
use super::{Installation, finding};
use crate::management::Exchange;
use crate::names::{self, SLOTS};

const REBIND: &str = "start a member of the group with create=true, which adds the missing bindings";

pub(super) fn findings(server: &Installation<'_>) -> Vec<Finding> {
    let groups = server.exchanges.iter().filter(|exchange| is_group(server, exchange));
    groups
        .flat_map(|group| [unbound(server, group), missing(server, group), duplicated(server, group)])
        .flatten()
        .collect()
}

/// The binding of the group's exchange to its topic.
fn unbound(server: &Installation<'_>, group: &Exchange) -> Option<Finding> {
    let (topic, _) = names::group_of(server.prefix, &group.name)?;
    let topic = format!("{}{topic}", server.prefix);
    let is_bound = server.bindings.iter().any(|bound| bound.source == topic && bound.destination == group.name);
    let what = format!("the group is not bound to {topic}: it does not receive newly published messages");
    (!is_bound).then(|| finding("rabbitmq.group-unbound", Rank::Loss, &group.name, what, REBIND))
}

fn bound(server: &Installation<'_>, group: &Exchange, slot: u32) -> usize {
    let slot = slot.to_string();
    server.bindings.iter().filter(|bound| bound.source == group.name && bound.routing_key == slot).count()
}

fn missing(server: &Installation<'_>, group: &Exchange) -> Option<Finding> {
    let missing = (0..SLOTS).filter(|slot| bound(server, group, *slot) == 0).count();
    let what = format!("{missing} of {SLOTS} slots have no queue: their messages can be reordered");
    (missing > 0).then(|| finding("rabbitmq.slot-unbound", Rank::Order, &group.name, what, REBIND))
}

fn duplicated(server: &Installation<'_>, group: &Exchange) -> Option<Finding> {
    let duplicated = (0..SLOTS).filter(|slot| bound(server, group, *slot) > 1).count();
    let what = format!("{duplicated} of {SLOTS} slots have several queues: their messages are delivered concurrently");
    let mend = "remove the bindings that Landfall did not create";
    (duplicated > 0).then(|| finding("rabbitmq.slot-twice", Rank::Order, &group.name, what, mend))
}
