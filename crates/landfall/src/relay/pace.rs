//! The pace of passes under steady traffic: a pass that moves a few messages costs the database as much as one that
//! moves many.

use std::time::{Duration, Instant};

/// The pause before the next pass under steady traffic. It delays a message by half of this on average.
const PAUSE: Duration = Duration::from_millis(5);
/// Traffic is judged over this time.
const WINDOW: Duration = Duration::from_millis(50);
/// Traffic is steady if a window had this many messages, two for each pause that fits into it,
const STEADY_MESSAGES: usize = 20;
/// in this many passes. A single burst is not steady.
const STEADY_PASSES: usize = 3;

/// Decides how long to wait after a pass, so that messages of steady traffic share reads and settlements.
///
/// There is no pause for a lone message, for bursts, for traffic below 400 messages per second, and for a backlog.
pub(super) struct Pace {
    /// Passes that moved at least this many messages are large enough.
    large: usize,
    window: Window,
    is_steady: bool,
}

struct Window {
    since: Instant,
    messages: usize,
    passes: usize,
}

impl Window {
    fn starting(since: Instant) -> Self {
        Self { since, messages: 0, passes: 0 }
    }
}

impl Pace {
    pub(super) fn new(batch: usize, now: Instant) -> Self {
        Self { large: (batch / 8).max(1), window: Window::starting(now), is_steady: false }
    }

    /// Counts a pass that moved messages, and returns the pause before the next one.
    pub(super) fn pause_after(&mut self, messages: usize, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.window.since);
        if age >= WINDOW {
            // A window that is much too old was interrupted by a time without traffic.
            let Window { messages, passes, .. } = self.window;
            self.is_steady = age < 2 * WINDOW && messages >= STEADY_MESSAGES && passes >= STEADY_PASSES;
            self.window = Window::starting(now);
        }
        self.window.messages += messages;
        self.window.passes += 1;
        (self.is_steady && messages < self.large).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs passes of `messages` every `interval` for a while. Returns whether a pause followed the last one.
    fn pauses(pace: &mut Pace, start: &mut Instant, messages: usize, interval: Duration) -> bool {
        let mut pause = None;
        for _ in 0..50 {
            *start += interval;
            pause = pace.pause_after(messages, *start);
            *start += pause.unwrap_or_default();
        }
        pause.is_some()
    }

    #[test]
    fn only_small_passes_of_steady_traffic_are_followed_by_a_pause() {
        let mut now = Instant::now();
        let mut pace = Pace::new(1000, now);
        let millis = Duration::from_millis;
        assert!(!pauses(&mut pace, &mut now, 1, millis(50)), "twenty messages per second");
        assert!(pauses(&mut pace, &mut now, 4, millis(4)), "a thousand messages per second");
        // As many messages as arrive during the pause as well.
        assert!(pauses(&mut pace, &mut now, 9, millis(4)), "the pause ended itself");
        assert!(!pauses(&mut pace, &mut now, 1000, millis(20)), "a backlog");
        assert!(!pauses(&mut pace, &mut now, 1, millis(5)), "two hundred messages per second");
        assert!(!pauses(&mut pace, &mut now, 100, millis(60)), "bursts");
    }

    #[test]
    fn first_message_after_a_quiet_time_is_followed_by_no_pause() {
        let mut now = Instant::now();
        let mut pace = Pace::new(1000, now);
        assert!(pauses(&mut pace, &mut now, 4, Duration::from_millis(4)));
        assert_eq!(pace.pause_after(1, now + Duration::from_secs(1)), None);
    }
}
