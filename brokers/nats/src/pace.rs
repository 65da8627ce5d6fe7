//! Which of two ways is the faster one on this server, learnt from what they took.
//!
//! Nobody can ask a server whether it syncs before it answers. One that does is several times faster with a batch, which it
//! syncs once; one that does not writes a batch twice, and is faster with single messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The slower way is tried again once in so many calls: a server may be set up anew.
const TRIED_AGAIN: u64 = 64;
/// Fewer messages than this tell more about one round trip than about the way.
const TELLING: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Keys with few messages key by key, and only the others in batches.
    Singly,
    /// Everything in batches.
    Batched,
}

/// What a message took, by way.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds, smoothed; zero until it was tried.
    singly: AtomicU64,
    batched: AtomicU64,
    calls: AtomicU64,
}

impl Pace {
    pub(crate) fn choose(&self) -> Way {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (singly, batched) = (self.singly.load(Ordering::Relaxed), self.batched.load(Ordering::Relaxed));
        let is_turn_of_the_slower = call % TRIED_AGAIN == TRIED_AGAIN - 1;
        match (singly, batched) {
            (0, _) => Way::Singly,
            (_, 0) => Way::Batched,
            _ if (singly <= batched) != is_turn_of_the_slower => Way::Singly,
            _ => Way::Batched,
        }
    }

    /// So many messages took this long together, and all were accepted.
    pub(crate) fn learn(&self, way: Way, messages: usize, elapsed: Duration) {
        if messages < TELLING {
            return;
        }
        let took = match way {
            Way::Singly => &self.singly,
            Way::Batched => &self.batched,
        };
        let each = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX) / messages as u64;
        let smoothed = match took.load(Ordering::Relaxed) {
            0 => each,
            before => before / 4 * 3 + each / 4,
        };
        // Two calls at once may lose one of their figures, which does no harm.
        took.store(smoothed.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(10);
    const SLOW: Duration = Duration::from_millis(100);

    fn after_both(singly: Duration, batched: Duration) -> Pace {
        let pace = Pace::default();
        for (way, elapsed) in [(Way::Singly, singly), (Way::Batched, batched)] {
            assert_eq!(pace.choose(), way, "each is tried once");
            pace.learn(way, 1_000, elapsed);
        }
        pace
    }

    #[test]
    fn the_faster_way_is_taken_and_the_slower_one_tried_now_and_then() {
        for (singly, batched, faster) in [(FAST, SLOW, Way::Singly), (SLOW, FAST, Way::Batched)] {
            let pace = after_both(singly, batched);
            let ways: Vec<_> = (0..TRIED_AGAIN).map(|_| pace.choose()).collect();
            assert_eq!(ways.iter().filter(|way| **way != faster).count(), 1, "{ways:?}");
        }
    }

    #[test]
    fn a_server_that_has_changed_is_noticed() {
        let pace = after_both(FAST, SLOW);
        for _ in 0..20 {
            pace.learn(Way::Singly, 1_000, SLOW * 10);
        }
        assert_eq!(pace.choose(), Way::Batched);
    }

    #[test]
    fn a_few_messages_tell_nothing() {
        let pace = Pace::default();
        pace.learn(Way::Singly, TELLING - 1, SLOW);
        assert_eq!(pace.choose(), Way::Singly, "it was not tried yet");
    }
}
