//! Checks of the work that waits: an old backlog, dead letters, failing deliveries.

use std::time::Duration;

use landfall::housekeeping::Span;
use landfall::{DeliveryFilter, Finding, OpenLetters, OutboxStats, Rank};

use crate::stores::Database;

/// A relay publishes within milliseconds; after this time something is wrong.
const OLD: Duration = Duration::from_secs(60);

/// Reads the tables, which must have this build's version.
pub(super) async fn diagnose(database: &Database) -> landfall::Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = outbox(&database.view.stats().await?).into_iter().collect();
    findings.extend(database.dead_letters.open_letters().await?.iter().filter_map(dead_letters));
    for (topic, group, count) in database.deliveries.retrying_counts().await? {
        let filter = DeliveryFilter { topic: Some(topic.clone()), group: Some(group.clone()), ..Default::default() };
        let oldest = database.deliveries.retrying(&filter, 1).await?;
        let error = oldest.first().map_or("unknown", |delivery| delivery.error.as_str());
        findings.push(Finding::new(
            ("backlog.deliveries", Rank::Latency),
            format!("{topic}/{group}"),
            format!("deliveries fail and are retried ({count}); the error of the oldest is: {error}"),
            format!("repair the receiver; landfall dlq retrying --topic {topic} --group {group}"),
        ));
    }
    Ok(findings)
}

fn outbox(stats: &OutboxStats) -> Option<Finding> {
    let oldest = Duration::try_from_secs_f64(stats.oldest_seconds.floor()).unwrap_or(Duration::MAX);
    let (unsent, age) = (stats.pending + stats.retrying, Span::Time(oldest));
    (oldest >= OLD).then(|| {
        Finding::new(
            ("backlog.outbox", Rank::Latency),
            "outbox",
            format!("messages are not published ({unsent}), the oldest for {age}"),
            "start a relay, or read its log and `landfall outbox list`",
        )
    })
}

fn dead_letters(letters: &OpenLetters) -> Option<Finding> {
    let OpenLetters { topic, group, stats } = letters;
    let about = group.as_ref().map_or_else(|| format!("{topic} (relay)"), |group| format!("{topic}/{group}"));
    let count = stats.needing_action();
    (count > 0).then(|| {
        Finding::new(
            ("backlog.dead-letters", Rank::Latency),
            about,
            format!("dead letters and the messages behind them wait for a person ({count})"),
            format!("landfall dlq list --topic {topic}; repair the cause, then redrive, edit or discard them"),
        )
    })
}
