//! One topic: what its settings take away, and which groups are about to find something gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Demands, Finding, Rank, Result, Span, Timestamp, TopicName};

use crate::group::lag::{GroupDescription, PartitionLag};
use crate::storage::cursor::{Cursor, Extents};
use crate::topic::describe::TopicDescription;
use crate::topic::settings::TopicSettings;

const DROPS_UNREAD: (&str, Rank) = ("log.may-drop-unread", Rank::Loss);
const NO_GROUP: (&str, Rank) = ("log.no-group", Rank::Loss);
const WINDOW: (&str, Rank) = ("log.dedup-window", Rank::Duplicates);
const NO_DEDUPLICATION: (&str, Rank) = ("log.deduplicate", Rank::Duplicates);
const BEHIND: &str = "log.group-behind";

/// Which topics settings belong to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of<'a> {
    Topic(&'a TopicName),
    /// Those that come into being with their first message.
    TopicsToCome,
}

impl Of<'_> {
    /// What gives the setting `name` the value `value`.
    fn mend(self, name: &str, value: &str) -> String {
        match self {
            Of::Topic(topic) => format!("landfall topic configure {topic} --{}={value}", name.replace('_', "-")),
            Of::TopicsToCome if value.parse::<bool>().is_ok() => format!("{name} = {value} under [broker]"),
            Of::TopicsToCome => format!("{name} = {value:?} under [broker]"),
        }
    }
}

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Of::Topic(topic) => write!(f, "topic {topic}"),
            Of::TopicsToCome => f.write_str("every topic to come"),
        }
    }
}

/// What the topic takes away, and what its groups have yet to read of it. Blocks on the files.
pub(super) fn diagnose(
    description: &TopicDescription,
    partitions: &[Arc<dyn Extents>],
    demands: &Demands,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let mut findings = settings(Of::Topic(&description.topic), &description.settings, demands);
    findings.extend(no_group(description));
    for group in &description.groups {
        findings.extend(behind(description, group, partitions, now)?);
    }
    Ok(findings)
}

/// What `settings` let happen to any message.
pub(super) fn settings(of: Of<'_>, settings: &TopicSettings, demands: &Demands) -> Vec<Finding> {
    let (about, mut findings) = (of.to_string(), Vec::new());
    let is_limited = settings.retention_time.is_some() || settings.retention_bytes.is_some();
    if settings.may_drop_unread && is_limited {
        let what = format!(
            "{about} drops what is too old or too much ({}) although a group has not read it: a consumer that is down for \
             longer loses messages",
            limits(settings)
        );
        findings.push(Finding::new(DROPS_UNREAD, &about, what, of.mend("may_drop_unread", "false")));
    }
    if !settings.deduplicate {
        let what =
            format!("{about} stores a message again when a relay sends it again: consumers get copies to turn away");
        findings.push(Finding::new(NO_DEDUPLICATION, &about, what, of.mend("deduplicate", "true")));
    } else if let Some(what) = window_is_short(settings, demands) {
        let (name, value) = match settings.retention_time.map(Span::Time).and_then(|time| time.short_of(demands.window))
        {
            Some(_) => ("retention", demands.window.to_string()),
            None => ("retention_bytes", "unlimited".to_owned()),
        };
        findings.push(Finding::new(WINDOW, &about, format!("{about} {what}"), of.mend(name, &value)));
    }
    findings
}

/// An id is known for as long as its message is kept.
fn window_is_short(settings: &TopicSettings, demands: &Demands) -> Option<String> {
    let window = demands.window;
    if window == Span::ZERO {
        return None;
    }
    if let Some(time) = settings.retention_time.map(Span::Time)
        && let Some(missing) = time.short_of(window)
    {
        return Some(format!(
            "knows an id for {time}, and a message may come again for {window} (longest retry, dead letters and redrive \
             together): what comes back later than that, up to {missing}, is stored a second time"
        ));
    }
    let bytes = settings.retention_bytes?;
    Some(format!(
        "knows an id until {bytes} bytes have followed in its partition, which may be sooner than the {window} for which a \
         message may come again: what comes back later is stored a second time"
    ))
}

/// Unread messages are kept for groups; where there is no group, nothing is unread.
fn no_group(description: &TopicDescription) -> Option<Finding> {
    let TopicSettings { retention_time, retention_bytes, may_drop_unread, compact, .. } = description.settings;
    let removes = retention_time.is_some() || retention_bytes.is_some();
    if !description.groups.is_empty() || description.messages == 0 || may_drop_unread || !(removes || compact) {
        return None;
    }
    let topic = &description.topic;
    let how = if removes { "retention removes" } else { "compaction removes all but the newest of a key of" };
    let what = format!(
        "no group has read topic {topic} yet and {how} what is in it: the first group to come finds all of its {} messages \
         only if it comes soon",
        description.messages
    );
    let mend = format!("landfall topic seek {topic} --group GROUP --to beginning, for the group that is to come");
    Some(Finding::new(NO_GROUP, format!("topic {topic}"), what, mend))
}

/// A group whose oldest unread message is about to go, or keeps what should have gone.
fn behind(
    description: &TopicDescription,
    group: &GroupDescription,
    partitions: &[Arc<dyn Extents>],
    now: Timestamp,
) -> Result<Option<Finding>> {
    let settings = &description.settings;
    let Some(retention) = settings.retention_time else { return Ok(None) };
    let mut oldest: Option<Duration> = None;
    for PartitionLag { partition, finished, .. } in group.partitions.iter().filter(|partition| partition.lag > 0) {
        let Some(extents) = partitions.get(*partition as usize) else { continue };
        let Some(batch) = Cursor::new(Arc::clone(extents), *finished).next_batch()? else { continue };
        oldest = oldest.max(Some(Timestamp::from_millis(batch.header.taken).elapsed_since(now)));
    }
    let Some(age) = oldest else { return Ok(None) };
    let (name, topic) = (&group.group, &description.topic);
    let (shown, limit) = (Span::Time(Duration::from_secs(age.as_secs())), Span::Time(retention));
    let about = format!("group {name} on {topic}");
    if settings.may_drop_unread && age >= retention / 2 {
        let what = format!(
            "the group {name} has {} unread messages in {topic}, the oldest {shown} old, and what is {limit} old is dropped \
             unread",
            group.lag
        );
        let mend = "start its consumers, or give the topic a longer retention or --may-drop-unread=false first";
        return Ok(Some(Finding::new((BEHIND, Rank::Loss), about, what, mend)));
    }
    if !settings.may_drop_unread && age >= retention {
        let what = format!(
            "the group {name} has {} unread messages in {topic}, the oldest {shown} old: all that came since is kept for it, \
             beyond the retention of {limit}, and the disk fills",
            group.lag
        );
        let mend =
            format!("start its consumers, or landfall topic forget {topic} --group {name}, if it is gone for good");
        return Ok(Some(Finding::new((BEHIND, Rank::Latency), about, what, mend)));
    }
    Ok(None)
}

fn limits(settings: &TopicSettings) -> String {
    let time = settings.retention_time.map(|time| format!("after {}", Span::Time(time)));
    let bytes = settings.retention_bytes.map(|bytes| format!("beyond {bytes} bytes a partition"));
    [time, bytes].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(settings: TopicSettings, window: Span) -> Option<String> {
        window_is_short(&settings, &Demands { window })
    }

    #[test]
    fn a_retention_must_outlast_the_window_in_which_a_message_may_come_again() {
        let keeps = |days| TopicSettings { retention_time: Span::days(days).time(), ..TopicSettings::default() };
        assert_eq!(found(keeps(45), Span::days(45)), None);
        assert_eq!(found(TopicSettings::default(), Span::Forever), None);
        assert!(found(keeps(7), Span::days(45)).unwrap().contains("up to 38d"));
        assert!(found(keeps(7), Span::Forever).unwrap().contains("up to forever"));
        assert_eq!(found(keeps(7), Span::ZERO), None);
    }

    #[test]
    fn bytes_are_no_time() {
        let bytes = TopicSettings { retention_bytes: Some(1 << 30), ..TopicSettings::default() };
        assert!(found(bytes, Span::days(1)).unwrap().contains("1073741824 bytes"));
    }
}
