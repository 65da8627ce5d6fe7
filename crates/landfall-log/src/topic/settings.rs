//! What can be chosen for each topic, and changed later.

use std::time::Duration;

use landfall_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// How long a topic keeps its messages, and what it does with those that came before.
///
/// Nothing is removed while a group has yet to finish it, unless `may_drop_unread` says so: a consumer that was down
/// over the weekend finds its messages on Monday, and the price is room on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSettings {
    /// Messages older than this may be removed; `None` keeps them for ever. Whole milliseconds.
    #[serde(rename = "retention_ms", with = "millis")]
    pub retention_time: Option<Duration>,
    /// What a partition has beyond this many bytes may be removed, the oldest first; `None` sets no limit.
    pub retention_bytes: Option<u64>,
    /// Whether retention may remove what a group has not finished.
    pub may_drop_unread: bool,
    /// Whether of each key only the newest message must be kept.
    pub compact: bool,
    /// Whether a message whose id the topic holds already is acknowledged with its first position and not stored again.
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
                return Err(Error::invalid(
                    "a retention of no time would keep nothing; leave it out to keep everything",
                ));
            }
            // It is stored so, and must be the same after the log was opened again.
            let whole = u64::try_from(time.as_millis()).map(Duration::from_millis);
            if whole != Ok(time) {
                return Err(Error::invalid(format!("a retention must be whole milliseconds; {time:?} is not")));
            }
        }
        if self.retention_bytes == Some(0) {
            return Err(Error::invalid("a retention of 0 bytes would keep nothing; leave it out to keep everything"));
        }
        Ok(())
    }

    /// What `self` has and `wanted` has differently, each as `name is this and not that`.
    pub(crate) fn differences(&self, wanted: &Self) -> Vec<String> {
        let time = |settings: &Self| {
            settings.retention_time.map_or("for ever".to_owned(), |time| format!("{} ms", time.as_millis()))
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

/// A time as a number of milliseconds, which every language can read.
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
    fn settings_are_read_as_they_were_written() {
        let settings = TopicSettings {
            retention_time: Some(Duration::from_secs(7 * 24 * 3600)),
            retention_bytes: Some(1 << 40),
            compact: true,
            ..TopicSettings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(
            text,
            r#"{"retention_ms":604800000,"retention_bytes":1099511627776,"may_drop_unread":false,"compact":true,"deduplicate":true}"#
        );
        assert_eq!(serde_json::from_str::<TopicSettings>(&text).unwrap(), settings);
    }

    #[test]
    fn what_would_keep_nothing_or_cannot_be_stored_is_refused() {
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
    fn every_difference_is_told() {
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
                "its retention is for ever and not 1000 ms",
                "its retention per partition is unlimited and not 10 bytes",
                "may_drop_unread is false and not true",
                "compact is false and not true",
                "deduplicate is true and not false"
            ]
        );
    }
}
