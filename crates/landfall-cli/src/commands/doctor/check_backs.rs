//! Checks of half messages: the targets of check-backs, the immunity period, and what waits for a person.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use landfall::check_back::ServiceResolver;
use landfall::housekeeping::Span;
use landfall::{Barriers, Finding, HalfMessageFilter, HalfMessageStats, HalfMessages, HalfState, Rank};

use crate::check_back::{business_database, origin, services};
use crate::config::{Config, Push, receiver_url};
use crate::error::Result;
use crate::push;

/// The newest undecided half messages, of each state, whose targets are probed.
const UNDECIDED: usize = 1000;
/// The most targets of them that are probed. Senders choose them, so their number has no other bound.
const STORED_TARGETS: usize = 20;

/// Connects to every configured target. Asks about no half message.
pub(super) async fn diagnose(config: &Config) -> Result<Vec<Finding>> {
    let databases = config.check_back.databases.keys();
    let databases = join_all(databases.map(async |name| diagnose_database(config, name).await)).await;
    let mut findings: Vec<Finding> = databases.into_iter().flatten().collect();
    let rules = rules(config);
    for (name, urls) in &config.check_back.services {
        for url in urls {
            let Ok(parsed) = receiver_url(url) else { continue };
            findings.extend(push::probe(&rules, &parsed).await?.map(|why| unreachable_service(name, url, &why)));
        }
    }
    Ok(findings)
}

/// Connects to the hosts that undecided half messages name: URLs, and services that the DNS knows. The configured
/// services are examined without half messages.
pub(super) async fn stored_targets(config: &Config, store: &dyn HalfMessages) -> Result<Vec<Finding>> {
    let mut targets = BTreeSet::new();
    for state in [HalfState::Prepared, HalfState::Parked] {
        let filter = HalfMessageFilter { state: Some(state), ..HalfMessageFilter::default() };
        for row in store.find_half_messages(&filter, UNDECIDED).await? {
            targets
                .extend([row.check_back.http, row.check_back.grpc].into_iter().flatten().filter_map(|it| origin(&it)));
        }
    }
    let is_configured = |target: &String| {
        target.strip_prefix("service:").is_some_and(|name| config.check_back.services.contains_key(name))
    };
    targets.retain(|target| !is_configured(target));
    let (rules, services) = (rules(config), services(config)?);
    let probes = targets.iter().take(STORED_TARGETS).map(async |target| {
        let unreachable = probe_target(&rules, &*services, target).await?;
        Ok(unreachable.map(|why| unreachable_target(target, &why)))
    });
    let probed: Result<Vec<_>> = join_all(probes).await.into_iter().collect();
    Ok(probed?.into_iter().flatten().collect())
}

/// Returns why no address of the target accepted a connection.
async fn probe_target(rules: &Push, services: &dyn ServiceResolver, target: &str) -> Result<Option<String>> {
    let urls = match target.strip_prefix("service:") {
        None => vec![target.to_owned()],
        Some(name) => match services.resolve(name).await {
            Ok(urls) => urls,
            Err(error) => return Ok(Some(error.to_string())),
        },
    };
    let mut last = None;
    for url in &urls {
        last = match receiver_url(url) {
            Ok(parsed) => push::probe(rules, &parsed).await?,
            Err(why) => Some(format!("the URL {why}")),
        };
        if last.is_none() {
            return Ok(None);
        }
    }
    Ok(last)
}

/// The rules of check-backs with the authorities of push, as the coordinator connects.
fn rules(config: &Config) -> Push {
    Push { rules: config.check_back.rules.clone(), ca_file: config.push.ca_file.clone() }
}

async fn diagnose_database(config: &Config, name: &str) -> Option<Finding> {
    let about = format!("check_back.databases.{name}");
    let database = business_database(config, name);
    match database.longest_transaction().await {
        Err(error) => Some(Finding::new(
            ("check-back.database", Rank::Latency),
            about,
            format!("check-backs get no answer from this business database: {error}"),
            "make sure that it runs, accepts this account and has the table landfall_barrier (`landfall migrate`)",
        )),
        Ok(open) => open.and_then(|open| short_immunity(about, open, config.check_back.immunity)),
    }
}

/// Compares with a transaction that is open right now, so that a healthy moment has no finding.
fn short_immunity(about: String, open: Duration, immunity: Duration) -> Option<Finding> {
    (open > immunity).then(|| {
        Finding::new(
            ("check-back.immunity", Rank::Latency),
            about,
            format!(
                "a transaction has been open for {}, and the immunity period is {}: check-backs are spent on \
                 transactions that are still running",
                Span::Time(Duration::from_secs(open.as_secs())),
                Span::Time(immunity)
            ),
            "raise check_back.immunity_ms above the longest local transaction, or shorten that",
        )
    })
}

fn unreachable_service(name: &str, url: &str, why: &str) -> Finding {
    Finding::new(
        ("check-back.service", Rank::Latency),
        format!("check_back.services.{name}"),
        format!("{url} is unreachable from here, so its half messages stay undecided: {why}"),
        "start the service, or correct its URL",
    )
}

fn unreachable_target(target: &str, why: &str) -> Finding {
    Finding::new(
        ("check-back.target", Rank::Latency),
        target,
        format!("undecided half messages name this target, which is unreachable from here: {why}"),
        "start the service, correct its DNS record or the URL that the sender gives; or decide with `landfall half`",
    )
}

/// What the stored half messages need.
pub(super) fn waiting(stats: &HalfMessageStats) -> Vec<Finding> {
    let HalfMessageStats { parked, contradicted, early_commits, .. } = *stats;
    let found = |count: u64, check, what: &str, mend: &str| {
        let what = format!("{what} ({count})");
        (count > 0).then(|| Finding::new((check, Rank::Latency), "half messages", what, mend))
    };
    let findings = [
        found(
            parked,
            "backlog.half-parked",
            "no check-back could decide, so they wait for a person",
            "landfall half list --state parked; then commit or rollback",
        ),
        found(
            contradicted,
            "backlog.half-contradicted",
            "a later decision was the opposite of the first one, which stays",
            "landfall half list --contradicted; correct the data, then acknowledge",
        ),
        found(
            early_commits,
            "backlog.half-early",
            "commits arrived, and their message was never prepared, so nothing is published",
            "landfall half list --state committed; let the sender prepare before it commits",
        ),
    ];
    findings.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immunity_is_compared_with_open_transactions() {
        let immunity = Duration::from_secs(30);
        assert_eq!(short_immunity(String::new(), Duration::from_secs(30), immunity), None);
        let finding = short_immunity("shop".into(), Duration::from_millis(90_400), immunity).unwrap();
        assert!(finding.what.contains("1m 30s, and the immunity period is 30s"), "{finding:?}");
    }
}
