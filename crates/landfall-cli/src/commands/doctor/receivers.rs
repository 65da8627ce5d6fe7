//! Checks of the receivers that the daemon posts to.

use futures_util::future::join_all;
use landfall::{Finding, Rank};

use crate::config::{Config, Subscription};
use crate::error::Result;
use crate::push;

/// Connects to the receiver of each subscription. Sends nothing.
pub(super) async fn diagnose(config: &Config) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let probes = config
        .subscription
        .iter()
        .map(async |subscription| (subscription, push::probe(&config.push, &subscription.url).await));
    for (subscription, probed) in join_all(probes).await {
        findings.extend(probed?.map(|why| unreachable_receiver(subscription, &why)));
    }
    Ok(findings)
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
