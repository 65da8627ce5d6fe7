//! The flags that set what a topic keeps, and how its settings are shown.

use std::time::Duration;

use clap::Args;
use landfall::log::TopicSettings;

use crate::units::{self, Kept, shown_bytes, shown_time};

#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(super) struct SettingsFlags {
    /// How long messages are kept: 7d, 36h, or forever.
    #[arg(long, value_name = "TIME", value_parser = units::retention)]
    retention: Option<Kept<Duration>>,
    /// How much a partition keeps, the newest first: 10GiB, 500MB, or unlimited.
    #[arg(long, value_name = "SIZE", value_parser = units::retention_bytes)]
    retention_bytes: Option<Kept<u64>>,
    /// Let retention remove what a group has not finished; without it a slow group keeps its messages.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    may_drop_unread: Option<bool>,
    /// Keep of each key only the newest message.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    compact: Option<bool>,
    /// Store a message whose id the topic holds already only once.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    deduplicate: Option<bool>,
    /// Store every message, whatever its id.
    #[arg(long, conflicts_with = "deduplicate")]
    no_deduplicate: bool,
}

impl SettingsFlags {
    /// `settings` with what was given in its place.
    pub(super) fn over(&self, settings: TopicSettings) -> TopicSettings {
        let deduplicate = if self.no_deduplicate { Some(false) } else { self.deduplicate };
        TopicSettings {
            retention_time: self.retention.map_or(settings.retention_time, |Kept(time)| time),
            retention_bytes: self.retention_bytes.map_or(settings.retention_bytes, |Kept(bytes)| bytes),
            may_drop_unread: self.may_drop_unread.unwrap_or(settings.may_drop_unread),
            compact: self.compact.unwrap_or(settings.compact),
            deduplicate: deduplicate.unwrap_or(settings.deduplicate),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        // Two that agree on nothing, so that any flag shows in one of them.
        let other = TopicSettings {
            retention_time: Some(Duration::from_secs(1)),
            retention_bytes: Some(1),
            may_drop_unread: true,
            compact: true,
            deduplicate: false,
        };
        [TopicSettings::default(), other].iter().all(|settings| self.over(*settings) == *settings)
    }
}

/// How long and how much, in one cell.
pub(super) fn kept(settings: &TopicSettings) -> String {
    match (settings.retention_time, settings.retention_bytes) {
        (None, None) => "forever".to_owned(),
        (Some(time), None) => shown_time(time),
        (None, Some(bytes)) => shown_bytes(bytes),
        (Some(time), Some(bytes)) => format!("{} or {}", shown_time(time), shown_bytes(bytes)),
    }
}
