use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::name::quoted;
use crate::{Error, Result};

/// A UTC timestamp in milliseconds; displayed and parsed as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    pub fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time from `self` to `now`; zero if `self` is in the future.
    pub fn elapsed_since(self, now: Timestamp) -> Duration {
        Duration::from_millis(now.0.saturating_sub(self.0).max(0) as u64)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // humantime panics beyond the year 9999, so clamp.
        let millis = self.0.clamp(0, 253_402_300_799_999) as u64;
        humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)).fmt(f)
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        humantime::parse_rfc3339_weak(text).map(Self::from).map_err(|error| {
            let text = quoted(text);
            Error::invalid(format!("time {text} is not RFC 3339 in UTC, such as 2026-11-15T08:00:00Z"))
                .with_source(error)
        })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_time_parses_back() {
        let time = Timestamp::from_millis(1_794_732_000_123);
        assert_eq!(time.to_string(), "2026-11-15T08:40:00.123Z");
        assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
    }
}
