//! The doctor's checks of one topic: its settings, and groups that lag behind its retention.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Finding, Rank, Result, Span, Timestamp, TopicName};

use crate::group::lag::{GroupDescription, PartitionLag};
use crate::storage::cursor::{Cursor, Extents};
use crate::topic::describe::TopicDescription;
use crate::topic::settings::TopicSettings;

const DROPS_UNREAD: (&str, Rank) = ("log.may-drop-unread", Rank::Loss);
const NO_GROUP: (&str, Rank) = ("log.no-group", Rank::Loss);
const WINDOW: (&str, Rank) = ("log.dedup-window", Rank::Duplicates);
const NO_DEDUPLICATION: (&str, Rank) = ("log.deduplicate", Rank::Duplicates);
const BEHIND: &str = "log.group-behind";

/// The topics that settings apply to.
#[derive(Debug, Clone, Copy)]
pub(super) enum SettingsScope<'a> {
    Topic(&'a TopicName),
    /// Topics that their first message creates.
    NewTopics,
}

impl SettingsScope<'_> {
    /// The command or configuration that sets `name` to `value`.
    fn mend(self, name: &str, value: &str) -> String {
        match self {
            SettingsScope::Topic(topic) => {
                format!("landfall topic configure {topic} --{}={value}", name.replace('_', "-"))
            }
            SettingsScope::NewTopics if value.parse::<bool>().is_ok() => format!("{name} = {value} under [broker]"),
            SettingsScope::NewTopics => format!("{name} = {value:?} under [broker]"),
        }
    }
}

impl fmt::Display for SettingsScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsScope::Topic(topic) => write!(f, "topic {topic}"),
            SettingsScope::NewTopics => f.write_str("every new topic"),
        }
    }
}

/// Checks the settings of the topic and the lag of its groups. Blocks on the files.
pub(super) fn diagnose(
    description: &TopicDescription,
    partitions: &[Arc<dyn Extents>],
    demands: &Demands,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let mut findings = settings(SettingsScope::Topic(&description.topic), &description.settings, demands);
    findings.extend(no_group(description));
    for group in &description.groups {
        findings.extend(lagging(description, group, partitions, now)?);
    }
    Ok(findings)
}

/// Checks which losses and duplicates `settings` allow.
pub(super) fn settings(scope: SettingsScope<'_>, settings: &TopicSettings, demands: &Demands) -> Vec<Finding> {
    let (about, mut findings) = (scope.to_string(), Vec::new());
    let is_limited = settings.retention_time.is_some() || settings.retention_bytes.is_some();
    if settings.may_drop_unread && is_limited {
        let what = format!(
            "{about} removes messages that are too old or too many ({}) even if a group has not read them: a consumer \
             that is down for longer loses messages",
            limits(settings)
        );
        findings.push(Finding::new(DROPS_UNREAD, &about, what, scope.mend("may_drop_unread", "false")));
    }
    if !settings.deduplicate {
        let what = format!("{about} stores a message again when a relay resends it: consumers receive duplicates");
        findings.push(Finding::new(NO_DEDUPLICATION, &about, what, scope.mend("deduplicate", "true")));
    } else if let Some(what) = window_is_short(settings, demands) {
        let (name, value) = match settings.retention_time.map(Span::Time).and_then(|time| time.short_of(demands.window))
        {
            Some(_) => ("retention", demands.window.to_string()),
            None => ("retention_bytes", "unlimited".to_owned()),
        };
        findings.push(Finding::new(WINDOW, &about, format!("{about} {what}"), scope.mend(name, &value)));
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
            "knows an id for {time}, but a message may be resent for {window} (longest retry, dead letters and redrive \
             together): a message that is resent later, up to {missing}, is stored a second time"
        ));
    }
    let bytes = settings.retention_bytes?;
    Some(format!(
        "knows an id until {bytes} bytes have followed in its partition, which may be sooner than the {window} for \
             which a message may be resent: a message that is resent later is stored a second time"
    ))
}

/// Unread messages are kept for groups; without a group, no message is unread.
fn no_group(description: &TopicDescription) -> Option<Finding> {
    let TopicSettings { retention_time, retention_bytes, may_drop_unread, compact, .. } = description.settings;
    let removes = retention_time.is_some() || retention_bytes.is_some();
    if !description.groups.is_empty() || description.messages == 0 || may_drop_unread || !(removes || compact) {
        return None;
    }
    let topic = &description.topic;
    let how = if removes { "retention" } else { "compaction, which keeps the newest message of each key," };
    let what = format!(
        "no group has read topic {topic} yet and {how} removes messages from it: the first group finds all of its \
         {} messages only if it subscribes soon",
        description.messages
    );
    let mend = format!("landfall topic seek {topic} --group GROUP --to beginning, for the first group");
    Some(Finding::new(NO_GROUP, format!("topic {topic}"), what, mend))
}

/// Reports a group whose oldest unread message is about to expire, or that keeps expired messages from being removed.
fn lagging(
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
        oldest = oldest.max(Some(Timestamp::from_millis(batch.header.appended_at).elapsed_since(now)));
    }
    let Some(age) = oldest else { return Ok(None) };
    let (name, topic) = (&group.group, &description.topic);
    let (shown, limit) = (Span::Time(Duration::from_secs(age.as_secs())), Span::Time(retention));
    let about = format!("group {name} on {topic}");
    if settings.may_drop_unread && age >= retention / 2 {
        let what = format!(
            "the group {name} has {} unread messages in {topic}, the oldest {shown} old, and unread messages are \
             removed at the age of {limit}",
            group.lag
        );
        let mend = "start its consumers, or give the topic a longer retention or --may-drop-unread=false first";
        return Ok(Some(Finding::new((BEHIND, Rank::Loss), about, what, mend)));
    }
    if !settings.may_drop_unread && age >= retention {
        let what = format!(
            "the group {name} has {} unread messages in {topic}, the oldest {shown} old: all later messages are kept \
             for it, beyond the retention of {limit}, and the disk fills",
            group.lag
        );
        let mend =
            format!("start its consumers, or landfall topic forget {topic} --group {name}, if it is no longer used");
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
    fn retention_must_outlast_the_resend_window() {
        let keeps = |days| TopicSettings { retention_time: Span::days(days).time(), ..TopicSettings::default() };
        assert_eq!(found(keeps(45), Span::days(45)), None);
        assert_eq!(found(TopicSettings::default(), Span::Forever), None);
        assert!(found(keeps(7), Span::days(45)).unwrap().contains("up to 38d"));
        assert!(found(keeps(7), Span::Forever).unwrap().contains("up to forever"));
        assert_eq!(found(keeps(7), Span::ZERO), None);
    }

    #[test]
    fn retention_by_size_gives_no_window() {
        let bytes = TopicSettings { retention_bytes: Some(1 << 30), ..TopicSettings::default() };
        assert!(found(bytes, Span::days(1)).unwrap().contains("1073741824 bytes"));
    }
}
