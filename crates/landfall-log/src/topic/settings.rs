//! Settings of a topic, which can be changed later.

use std::time::Duration;

use landfall_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Retention, compaction and deduplication of a topic.
///
/// Messages that a group has not finished are kept, unless `may_drop_unread` is set. A consumer that was down over the
/// weekend finds its messages on Monday, at the cost of disk space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSettings {
    /// Messages older than this may be removed; `None` keeps them forever. Whole milliseconds.
    #[serde(rename = "retention_ms", with = "millis")]
    pub retention_time: Option<Duration>,
    /// Messages beyond this size of a partition may be removed, oldest first; `None` sets no limit.
    pub retention_bytes: Option<u64>,
    /// Whether retention may remove messages that a group has not finished.
    pub may_drop_unread: bool,
    /// Whether compaction keeps only the newest message of each key.
    pub compact: bool,
    /// Whether a message with a known id is acknowledged with its first position instead of being stored again.
    pub deduplicate: bool,
}

impl Default for TopicSettings {
    /// Keeps everything, and each message once.
    fn default() -> Self {
        Self { retention_time: None, retention_bytes: None, may_drop_unread: false, compact: false, deduplicate: true }
    }
}

impl TopicSettings {
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(time) = self.retention_time {
            if time.is_zero() {
                return Err(Error::invalid("a retention of no time would keep nothing; omit it to keep everything"));
            }
            // Stored in milliseconds, and must be the same after the log is reopened.
            let whole = u64::try_from(time.as_millis()).map(Duration::from_millis);
            if whole != Ok(time) {
                return Err(Error::invalid(format!("a retention must be whole milliseconds; {time:?} is not")));
            }
        }
        if self.retention_bytes == Some(0) {
            return Err(Error::invalid("a retention of 0 bytes would keep nothing; omit it to keep everything"));
        }
        Ok(())
    }

    /// Lists the settings in which `self` differs from `wanted`, each as `name is this and not that`.
    pub(crate) fn differences(&self, wanted: &Self) -> Vec<String> {
        let time = |settings: &Self| {
            settings.retention_time.map_or("forever".to_owned(), |time| format!("{} ms", time.as_millis()))
        };
        let bytes =
            |settings: &Self| settings.retention_bytes.map_or("unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
        let flag = |name, one: bool, other: bool| (name, one.to_string(), other.to_string());
        let all = [
            ("its retention", time(self), time(wanted)),
            ("its retention per partition", bytes(self), bytes(wanted)),
            flag("may_drop_unread", self.may_drop_unread, wanted.may_drop_unread),
            flag("compact", self.compact, wanted.compact),
            flag("deduplicate", self.deduplicate, wanted.deduplicate),
        ];
        let differs = all.into_iter().filter(|(_, one, other)| one != other);
        differs.map(|(name, one, other)| format!("{name} is {one} and not {other}")).collect()
    }
}

/// A duration as a number of milliseconds, which every language can read.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is what serde calls")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_back_unchanged() {
        let settings = TopicSettings {
            retention_time: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: Some(1 << 40),
            compact: true,
            ..TopicSettings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"retention_ms":604800000,"retention_bytes":1099511627776,"#,
                r#""may_drop_unread":false,"compact":true,"deduplicate":true}"#
            )
        );
        assert_eq!(serde_json::from_str::<TopicSettings>(&text).unwrap(), settings);
    }

    #[test]
    fn settings_that_keep_nothing_or_cannot_be_stored_are_refused() {
        for bad in [
            TopicSettings { retention_time: Some(Duration::ZERO), ..TopicSettings::default() },
            TopicSettings { retention_time: Some(Duration::from_micros(1500)), ..TopicSettings::default() },
            TopicSettings { retention_time: Some(Duration::MAX), ..TopicSettings::default() },
            TopicSettings { retention_bytes: Some(0), ..TopicSettings::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(TopicSettings::default().check().is_ok());
    }

    #[test]
    fn every_difference_is_reported() {
        let one = TopicSettings::default();
        let other = TopicSettings {
            retention_time: Some(Duration::from_secs(1)),
            retention_bytes: Some(10),
            may_drop_unread: true,
            compact: true,
            deduplicate: false,
        };
        assert_eq!(one.differences(&one), Vec::<String>::new());
        assert_eq!(
            one.differences(&other),
            [
                "its retention is forever and not 1000 ms",
                "its retention per partition is unlimited and not 10 bytes",
                "may_drop_unread is false and not true",
                "compact is false and not true",
                "deduplicate is true and not false"
            ]
        );
    }
}
