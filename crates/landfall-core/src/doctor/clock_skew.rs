use std::time::Duration;

use crate::{Finding, Rank, Timestamp};

/// The difference between a server's clock and the local one, measured by one round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSkew {
    /// Milliseconds by which the server is ahead; negative if it is behind.
    pub ahead_ms: i64,
    /// Half the round trip: the server read its clock at some moment between request and response.
    pub uncertainty_ms: i64,
}

impl ClockSkew {
    /// Clocks that follow any time server are much closer than this.
    pub const TOLERATED: Duration = Duration::from_secs(1);

    /// Compares the server's time `theirs` with the local times of the request and the response.
    pub fn measured(asked: Timestamp, theirs: Timestamp, answered: Timestamp) -> Self {
        let (asked, answered) = (asked.as_millis(), answered.as_millis());
        let half = answered.saturating_sub(asked).max(0) / 2;
        Self {
            ahead_ms: theirs.as_millis().saturating_sub(asked.saturating_add(half)),
            // Both clocks are rounded down to the millisecond.
            uncertainty_ms: half.saturating_add(1),
        }
    }

    /// Returns the smallest difference that the measurement proves.
    pub fn at_least(self) -> Duration {
        Duration::from_millis(self.ahead_ms.unsigned_abs().saturating_sub(self.uncertainty_ms.unsigned_abs()))
    }

    pub fn is_tolerable(self) -> bool {
        self.at_least() <= Self::TOLERATED
    }

    /// Returns the finding for a database at `place`, if the skew is not tolerable.
    pub fn database_finding(self, check: &'static str, place: &str) -> Option<Finding> {
        let what = format!(
            "the server's clock is {self}; leases and retries use the server's clock and messages the sender's, \
             so reported ages and delays are wrong by as much"
        );
        let mend = "synchronise both clocks with a time server (chrony, systemd-timesyncd)";
        (!self.is_tolerable()).then(|| Finding::new((check, Rank::Latency), place, what, mend))
    }
}

impl std::fmt::Display for ClockSkew {
    /// Formats the end of "the server's clock is …".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.ahead_ms < 0 { "behind" } else { "ahead of" };
        write!(f, "{:.1} s {side} this machine's", self.ahead_ms.unsigned_abs() as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skew(asked: i64, theirs: i64, answered: i64) -> ClockSkew {
        ClockSkew::measured(
            Timestamp::from_millis(asked),
            Timestamp::from_millis(theirs),
            Timestamp::from_millis(answered),
        )
    }

    #[test]
    fn clock_is_compared_with_the_middle_of_the_round_trip() {
        assert_eq!(skew(1000, 1100, 1200), ClockSkew { ahead_ms: 0, uncertainty_ms: 101 });
        assert_eq!(skew(1000, 4100, 1200).ahead_ms, 3000);
        assert_eq!(skew(5000, 2100, 5200).ahead_ms, -3000);
        assert_eq!(skew(5000, 2100, 5200).to_string(), "3.0 s behind this machine's");
    }

    #[test]
    fn slow_response_is_not_skew() {
        let slow = skew(0, 9000, 10_000);
        assert_eq!(slow.ahead_ms, 4000);
        assert!(slow.is_tolerable(), "the server may have read its clock just before it answered");
        assert!(!skew(0, 9000, 100).is_tolerable());
        assert_eq!(skew(0, 9000, 100).at_least(), Duration::from_millis(8899));
    }

    #[test]
    fn local_clock_set_back_meanwhile_is_harmless() {
        assert_eq!(skew(2000, 2000, 1000), ClockSkew { ahead_ms: 0, uncertainty_ms: 1 });
        assert!(!skew(i64::MIN, i64::MAX, i64::MAX).is_tolerable());
    }
}
