//! The poll interval of an idle relay, for writers that do not wake it.

use std::time::{Duration, Instant};

/// The first interval; it doubles with each poll that finds nothing.
const FIRST: Duration = Duration::from_millis(1);
/// The longest interval while traffic is recent.
const RECENT_MAX: Duration = Duration::from_millis(4);
/// How long traffic counts as recent after its last message.
const RECENT: Duration = Duration::from_secs(1);

/// Decides how long to wait for a wake-up before the next poll. Short at first, because traffic comes in bursts, and
/// short while traffic is recent, because its next message is likely soon. Then it grows up to the maximum.
pub(super) struct Idle {
    since: Instant,
    pause: Duration,
    max: Duration,
}

impl Idle {
    /// `since` is the time of the last message.
    pub(super) fn new(max: Duration, since: Instant) -> Self {
        Self { since, pause: FIRST, max }
    }

    pub(super) fn next_pause(&mut self, now: Instant) -> Duration {
        let is_recent = now.saturating_duration_since(self.since) < RECENT;
        let max = if is_recent { RECENT_MAX.min(self.max) } else { self.max };
        let pause = self.pause.min(max);
        self.pause = (pause * 2).min(max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(idle: &mut Idle, now: &mut Instant, count: usize) -> Vec<u128> {
        let mut next = || {
            let pause = idle.next_pause(*now);
            *now += pause;
            pause.as_millis()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn pauses_stay_short_while_traffic_is_recent_and_then_grow_to_the_maximum() {
        let mut now = Instant::now();
        let mut idle = Idle::new(Duration::from_millis(100), now);
        assert_eq!(pauses(&mut idle, &mut now, 4), [1, 2, 4, 4]);
        // Until a second has passed.
        pauses(&mut idle, &mut now, 248);
        assert_eq!(pauses(&mut idle, &mut now, 6), [4, 8, 16, 32, 64, 100]);
    }

    #[test]
    fn no_pause_exceeds_the_maximum() {
        let mut now = Instant::now();
        let mut idle = Idle::new(Duration::from_millis(3), now);
        assert_eq!(pauses(&mut idle, &mut now, 3), [1, 2, 3]);
    }
}
