//! Parses and formats amounts with units: `7d`, `10GiB`, `500 messages`.

use std::time::Duration;

use crate::config::Flush;
use landfall::housekeeping::Span;

/// A limit on what is kept; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetentionLimit<T>(pub(crate) Option<T>);

/// The end of an error sentence: what the text must be.
type Expected = &'static str;

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Parses `7d`, `36h` or `90s`; `forever` and `0` mean no limit.
pub(crate) fn retention(text: &str) -> Result<RetentionLimit<Duration>, Expected> {
    const EXPECTED: Expected = "must be a time such as 7d, 36h or 90s, or forever";
    match text.trim() {
        "forever" | "0" => Ok(RetentionLimit(None)),
        text => humantime::parse_duration(text).map(|time| RetentionLimit(Some(time))).map_err(|_| EXPECTED),
    }
}

/// Parses `45d` or `36h`, `0` (do not keep) or `forever`.
pub(crate) fn span(text: &str) -> Result<Span, Expected> {
    text.parse().map_err(|_| "must be a time such as 45d or 36h, 0 or forever")
}

/// Parses `7d`, `36h` or `90s`; `0` is a zero duration.
pub(crate) fn age(text: &str) -> Result<Duration, Expected> {
    const EXPECTED: Expected = "must be a time such as 7d, 36h or 90s, or 0";
    match text.trim() {
        "0" => Ok(Duration::ZERO),
        text => humantime::parse_duration(text).map_err(|_| EXPECTED),
    }
}

/// Parses `10GiB`, `500MB` or `4096`; `unlimited` and `0` mean no limit.
pub(crate) fn retention_bytes(text: &str) -> Result<RetentionLimit<u64>, Expected> {
    const EXPECTED: Expected = "must be a size such as 10GiB, 500MB or a number of bytes, or unlimited";
    match text.trim() {
        "unlimited" | "0" => Ok(RetentionLimit(None)),
        text => bytes(text).map(|bytes| RetentionLimit(Some(bytes))).ok_or(EXPECTED),
    }
}

/// Parses `batch`, `500 messages` or `20ms`.
pub(crate) fn flush(text: &str) -> Result<Flush, Expected> {
    const EXPECTED: Expected = "must be batch, a count such as 500 messages, or a time such as 20ms";
    let text = text.trim();
    if text == "batch" {
        return Ok(Flush::Batch);
    }
    let every = match text.strip_suffix("messages") {
        Some(count) => count.trim().parse().ok().filter(|count| *count > 0).map(Flush::Messages),
        None => humantime::parse_duration(text).ok().filter(|time| !time.is_zero()).map(Flush::Interval),
    };
    every.ok_or(EXPECTED)
}

fn bytes(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (number, size) = unit.unwrap_or((text.strip_suffix('B').unwrap_or(text), 1));
    number.trim().parse::<u64>().ok()?.checked_mul(size)
}

/// Formats a size with a binary unit: `1.5 KiB`.
pub(crate) fn format_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut amount, mut unit) = (bytes as f64 / 1024.0, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    // 10 GiB, and not 10.0 GiB.
    let amount = format!("{amount:.1}");
    format!("{} {}", amount.strip_suffix(".0").unwrap_or(&amount), units[unit])
}

pub(crate) fn format_time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_parse_with_units() {
        let week = Duration::from_secs(7 * 24 * 3600);
        for (text, time) in [("7d", Some(week)), ("1week", Some(week)), ("forever", None), ("0", None)] {
            assert_eq!(retention(text), Ok(RetentionLimit(time)), "{text}");
        }
        for (text, bytes) in [
            ("10GiB", Some(10 << 30)),
            ("10 GiB", Some(10 << 30)),
            ("500MB", Some(500_000_000)),
            ("4096", Some(4096)),
            ("4096B", Some(4096)),
            ("unlimited", None),
            ("0", None),
        ] {
            assert_eq!(retention_bytes(text), Ok(RetentionLimit(bytes)), "{text}");
        }
        for bad in ["", "7", "-1d", "week", "7 d 3"] {
            assert!(retention(bad).is_err(), "{bad}");
        }
        for bad in ["", "GiB", "1.5GiB", "-1", "10XB", "99999999999TiB"] {
            assert!(retention_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn age_accepts_zero_and_refuses_forever() {
        assert_eq!(age("36h"), Ok(Duration::from_secs(36 * 3600)));
        assert_eq!(age("0"), Ok(Duration::ZERO));
        for bad in ["", "7", "forever", "-1d"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flush_parses_batch_count_and_interval() {
        assert_eq!(flush("batch"), Ok(Flush::Batch));
        assert_eq!(flush("500 messages"), Ok(Flush::Messages(500)));
        assert_eq!(flush("20ms"), Ok(Flush::Interval(Duration::from_millis(20))));
        for bad in ["", "0 messages", "messages", "0s", "500", "often"] {
            assert!(flush(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_formatted_with_units() {
        for (bytes, shown) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10 << 30, "10 GiB"), (3000 << 40, "3000 TiB")]
        {
            assert_eq!(format_bytes(bytes), shown);
        }
    }
}
