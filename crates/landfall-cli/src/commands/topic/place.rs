//! A place in a topic, as people write it.

use landfall::StartAt;

use crate::error::{Error, Result};

/// `beginning`, `end`, `17` or `2026-11-15T08:00:00Z`.
pub(super) fn place(text: &str) -> Result<StartAt> {
    match text {
        "beginning" => Ok(StartAt::Beginning),
        "end" => Ok(StartAt::End),
        _ => text.parse().map(StartAt::Offset).or_else(|_| text.parse().map(StartAt::Time)).map_err(|_| {
            Error::wrong_use("must be beginning, end, an offset, or a time in UTC such as 2026-11-15T08:00:00Z")
        }),
    }
}

#[cfg(test)]
mod tests {
    use landfall::Timestamp;

    use super::*;

    #[test]
    fn a_place_is_a_word_an_offset_or_a_time() {
        assert_eq!(place("beginning").unwrap(), StartAt::Beginning);
        assert_eq!(place("end").unwrap(), StartAt::End);
        assert_eq!(place("17").unwrap(), StartAt::Offset(17));
        let time = StartAt::Time(Timestamp::from_millis(1_794_732_000_123));
        assert_eq!(place("2026-11-15T08:40:00.123Z").unwrap(), time);
        for wrong in ["", "-1", "yesterday", "2026-13-01T00:00:00Z", "99999999999999999999"] {
            assert!(place(wrong).is_err(), "{wrong:?}");
        }
    }
}
