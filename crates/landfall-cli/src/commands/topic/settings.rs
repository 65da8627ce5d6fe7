//! The flags for the settings of a topic, and their display.

use std::time::Duration;

use crate::topics::TopicSettings;
use crate::units::{self, RetentionLimit, format_bytes, format_time};
use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(super) struct SettingsFlags {
    /// How long messages are kept: 7d, 36h, or forever.
    #[arg(long, value_name = "TIME", value_parser = units::retention)]
    retention: Option<RetentionLimit<Duration>>,
    /// How many bytes a partition keeps, newest first: 10GiB, 500MB, or unlimited.
    #[arg(long, value_name = "SIZE", value_parser = units::retention_bytes)]
    retention_bytes: Option<RetentionLimit<u64>>,
    /// Let retention remove messages that a group has not finished; otherwise a slow group keeps them.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    may_drop_unread: Option<bool>,
    /// Keep only the newest message of each key.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    compact: Option<bool>,
    /// Store a message id only once.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    deduplicate: Option<bool>,
    /// Store duplicates of a message id; same as --deduplicate=false.
    #[arg(long, conflicts_with = "deduplicate")]
    no_deduplicate: bool,
}

impl SettingsFlags {
    /// Returns `settings` with the given flags applied.
    pub(super) fn over(&self, settings: TopicSettings) -> TopicSettings {
        let deduplicate = if self.no_deduplicate { Some(false) } else { self.deduplicate };
        TopicSettings {
            retention_time: self.retention.map_or(settings.retention_time, |RetentionLimit(time)| time),
            retention_bytes: self.retention_bytes.map_or(settings.retention_bytes, |RetentionLimit(bytes)| bytes),
            may_drop_unread: self.may_drop_unread.unwrap_or(settings.may_drop_unread),
            compact: self.compact.unwrap_or(settings.compact),
            deduplicate: deduplicate.unwrap_or(settings.deduplicate),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        // Two settings that differ in every field, so that any flag changes one of them.
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

/// Returns retention time and size for one table cell.
pub(super) fn shown_retention(settings: &TopicSettings) -> String {
    match (settings.retention_time, settings.retention_bytes) {
        (None, None) => "forever".to_owned(),
        (Some(time), None) => format_time(time),
        (None, Some(bytes)) => format_bytes(bytes),
        (Some(time), Some(bytes)) => format!("{} or {}", format_time(time), format_bytes(bytes)),
    }
}
