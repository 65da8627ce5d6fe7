use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Error, Result};

/// A retention period: a duration or unlimited. Written `45d`, `36h 30m`, `0` or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// Shorter than [`Span::Forever`]: the derived order relies on the order of the variants.
    Time(Duration),
    Forever,
}

impl Span {
    pub const ZERO: Span = Span::Time(Duration::ZERO);

    pub fn days(days: u64) -> Self {
        Self::Time(Duration::from_secs(days.saturating_mul(24 * 3600)))
    }

    /// Returns the duration, unless unlimited.
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Time(time) => Some(time),
            Self::Forever => None,
        }
    }

    /// Adds two periods. An overflow is `Forever`.
    #[must_use]
    pub fn plus(self, other: Span) -> Span {
        match (self, other) {
            (Self::Time(one), Self::Time(other)) => one.checked_add(other).map_or(Self::Forever, Self::Time),
            _ => Self::Forever,
        }
    }

    /// Returns by how much `self` is shorter than `other`; `None` if it is not.
    #[must_use]
    pub fn short_of(self, other: Span) -> Option<Span> {
        match (self, other) {
            (Self::Forever, _) => None,
            (Self::Time(_), Self::Forever) => Some(Self::Forever),
            (Self::Time(time), Self::Time(other)) => {
                other.checked_sub(time).filter(|missing| !missing.is_zero()).map(Self::Time)
            }
        }
    }
}

impl fmt::Display for Span {
    /// Formats days to milliseconds, rounded up: the text is a valid configuration value and never too short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Time(time) = self else { return f.write_str("forever") };
        let mut rest = time.as_nanos().div_ceil(1_000_000);
        if rest == 0 {
            return f.write_str("0");
        }
        let mut separator = "";
        for (unit, millis) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
            let count = rest / millis;
            rest %= millis;
            if count > 0 {
                write!(f, "{separator}{count}{unit}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "forever" => Ok(Self::Forever),
            "0" => Ok(Self::ZERO),
            text => humantime::parse_duration(text).map(Self::Time).map_err(|error| {
                Error::invalid(format!("{text:?} is no time such as 45d, 36h, 0 or forever")).with_source(error)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn span_is_shown_in_usual_units() {
        for (span, shown) in [
            (Span::days(45), "45d"),
            (Span::Time(Duration::from_millis(94_061_001)), "1d 2h 7m 41s 1ms"),
            (Span::Time(Duration::from_nanos(1)), "1ms"),
            (Span::ZERO, "0"),
            (Span::Forever, "forever"),
        ] {
            assert_eq!(span.to_string(), shown);
        }
        for wrong in ["", "7", "-1d", "for ever"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn shown_span_parses_back_and_is_never_shorter(nanos in 0..u64::MAX) {
            let span = Span::Time(Duration::from_nanos(nanos));
            let read: Span = span.to_string().parse().unwrap();
            prop_assert!(read >= span);
            prop_assert!(span.short_of(read).is_none_or(|more| more < Span::Time(Duration::from_millis(1))));
        }

        #[test]
        fn missing_part_completes_the_span(one in 0..u64::MAX, other in 0..u64::MAX) {
            let (one, other) = (Span::Time(Duration::from_nanos(one)), Span::Time(Duration::from_nanos(other)));
            match one.short_of(other) {
                Some(missing) => prop_assert_eq!(one.plus(missing), other),
                None => prop_assert!(one >= other),
            }
            prop_assert_eq!(one.short_of(Span::Forever), Some(Span::Forever));
            prop_assert_eq!(Span::Forever.short_of(other), None);
        }
    }
}
