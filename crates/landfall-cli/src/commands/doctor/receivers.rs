//! Checks of the receivers that the daemon posts to, and of the services behind its proxy.

use futures_util::future::join_all;
use landfall::{Finding, Rank};

use crate::config::{Config, IdempotentRoute, Subscription};
use crate::error::Result;
use crate::{proxy, push};

/// Connects to the receiver of each subscription, and to the service of each route. Sends nothing.
pub(super) async fn diagnose(config: &Config) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let probes = config
        .subscription
        .iter()
        .map(async |subscription| (subscription, push::probe(&config.push, &subscription.url).await));
    for (subscription, probed) in join_all(probes).await {
        findings.extend(probed?.map(|why| unreachable_receiver(subscription, &why)));
    }
    let reach = proxy::reach(config);
    for route in &config.idempotent_route {
        findings.extend(push::probe(&reach, &route.upstream).await?.map(|why| unreachable_service(route, &why)));
    }
    Ok(findings)
}

fn unreachable_service(route: &IdempotentRoute, why: &str) -> Finding {
    let IdempotentRoute { pattern, upstream, .. } = route;
    Finding::new(
        ("proxy.upstream", Rank::Latency),
        pattern.to_string(),
        format!("the service {upstream} is unreachable from here: {why}"),
        "start the service, or correct the upstream of the route",
    )
}

fn unreachable_receiver(subscription: &Subscription, why: &str) -> Finding {
    let Subscription { topic, group, url, .. } = subscription;
    Finding::new(
        ("push.receiver", Rank::Latency),
        format!("{topic}/{group}"),
        format!("the receiver {url} is unreachable from here: {why}"),
        "start the receiver, or correct the url of the subscription",
    )
}
