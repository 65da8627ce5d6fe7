//! Parses the position in a topic at which a reader or a group starts.

use landfall::StartAt;

use crate::error::{Error, Result};

/// Parses `beginning`, `end`, `17` or `2026-11-15T08:00:00Z`.
pub(super) fn parse_start(text: &str) -> Result<StartAt> {
    match text {
        "beginning" => Ok(StartAt::Beginning),
        "end" => Ok(StartAt::End),
        _ => text.parse().map(StartAt::Offset).or_else(|_| text.parse().map(StartAt::Time)).map_err(|_| {
            Error::usage("must be beginning, end, an offset, or a time in UTC such as 2026-11-15T08:00:00Z")
        }),
    }
}

#[cfg(test)]
mod tests {
    use landfall::Timestamp;

    use super::*;

    #[test]
    fn start_parses_word_offset_or_time() {
        assert_eq!(parse_start("beginning").unwrap(), StartAt::Beginning);
        assert_eq!(parse_start("end").unwrap(), StartAt::End);
        assert_eq!(parse_start("17").unwrap(), StartAt::Offset(17));
        let time = StartAt::Time(Timestamp::from_millis(1_794_732_000_123));
        assert_eq!(parse_start("2026-11-15T08:40:00.123Z").unwrap(), time);
        for wrong in ["", "-1", "yesterday", "2026-13-01T00:00:00Z", "99999999999999999999"] {
            assert!(parse_start(wrong).is_err(), "{wrong:?}");
        }
    }
}
