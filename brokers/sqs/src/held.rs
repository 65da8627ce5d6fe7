//! The messages that a subscriber has received and that SQS keeps from everybody else meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// SQS keeps a message from others for no longer than this after it was received, however often it is asked to.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug)]
pub(crate) struct Held {
    visibility: Duration,
    next: u64,
    holds: HashMap<u64, Hold>,
    /// Given back for longer than SQS can wait, by SQS's id: not to be handed out before then.
    postponed: HashMap<String, Instant>,
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) receipt: String,
    message_id: String,
    received: Instant,
    /// From then on others get it.
    pub(crate) until: Instant,
    /// A request to keep it for longer is under way.
    pub(crate) extending: bool,
    /// What its holder decided while that request was under way: doing both at once could end either way round.
    pub(crate) decided: Option<Decision>,
    /// Nothing more can be done for it: it was decided, or SQS has taken it away.
    pub(crate) done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Finish,
    /// Others may have it in so many seconds.
    GiveBack(i32),
}

impl Held {
    pub(crate) fn new(visibility: Duration) -> Self {
        Self { visibility, next: 0, holds: HashMap::new(), postponed: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.holds.len()
    }

    /// Takes charge of what was received by a call that was made at `asked`.
    pub(crate) fn add(&mut self, receipt: String, message_id: String, asked: Instant) -> u64 {
        self.next += 1;
        let until = asked + self.visibility;
        let received = asked;
        let (extending, decided, done) = (false, None, false);
        let hold = Hold { receipt, message_id, received, until, extending, decided, done };
        self.holds.insert(self.next, hold);
        self.next
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Hold> {
        self.holds.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.holds.remove(&number);
    }

    /// Those that must be kept for longer now, marked as such: a third of their time has passed.
    pub(crate) fn extend(&mut self, now: Instant) -> Vec<(u64, String)> {
        let left = self.visibility * 2 / 3;
        let due = self.holds.iter_mut().filter(|(_, hold)| !hold.done && !hold.extending && hold.until <= now + left);
        let marked = due.map(|(number, hold)| {
            hold.extending = true;
            (*number, hold.receipt.clone())
        });
        marked.collect()
    }

    /// How SQS can be told to keep it back for `delay`: in whole seconds, and not past the longest. What is missing then
    /// is remembered.
    pub(crate) fn give_back(&mut self, number: u64, delay: Duration, now: Instant) -> Decision {
        let Some(hold) = self.holds.get(&number) else { return Decision::GiveBack(0) };
        let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let most = LONGEST.as_secs().saturating_sub(seconds(now - hold.received));
        let wanted = seconds(delay);
        if wanted > most
            && let Some(due) = now.checked_add(delay)
        {
            self.postponed.insert(hold.message_id.clone(), due);
        }
        Decision::GiveBack(i32::try_from(wanted.min(most)).unwrap_or(0))
    }

    /// How much longer a message that was just received must wait; `None` if it may be handed out.
    pub(crate) fn postponed(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let message_id = &self.holds.get(&number)?.message_id;
        let due = *self.postponed.get(message_id)?;
        if due > now {
            return Some(due - now);
        }
        self.postponed.remove(message_id);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VISIBILITY: Duration = Duration::from_secs(30);

    fn hour(hours: u64) -> Duration {
        Duration::from_secs(3600 * hours)
    }

    #[test]
    fn what_is_held_is_kept_for_longer_once_a_third_of_its_time_has_passed() {
        let (mut held, now) = (Held::new(VISIBILITY), Instant::now());
        let number = held.add("receipt".into(), "id".into(), now);
        assert_eq!(held.extend(now + Duration::from_secs(9)), []);
        assert_eq!(held.extend(now + Duration::from_secs(10)), [(number, "receipt".to_owned())]);
        assert_eq!(held.extend(now + Duration::from_secs(11)), [], "one request at a time");
        let hold = held.get(number).unwrap();
        (hold.extending, hold.done) = (false, true);
        assert_eq!(held.extend(now + Duration::from_secs(12)), [], "its holder is done with it");
    }

    #[test]
    fn a_delay_is_never_cut_short() {
        let (mut held, now) = (Held::new(VISIBILITY), Instant::now());
        let number = held.add("receipt".into(), "id".into(), now);
        for (delay, seconds) in [(0, 0), (400, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(held.give_back(number, Duration::from_millis(delay), now), Decision::GiveBack(seconds));
        }
        assert_eq!(held.postponed(number, now), None);
        // An hour has passed since it was received, so that eleven are left of the twelve.
        let later = now + hour(1);
        assert_eq!(held.give_back(number, hour(20), later), Decision::GiveBack(11 * 3600));
        held.remove(number);
        let again = held.add("other".into(), "id".into(), later + hour(11));
        assert_eq!(held.postponed(again, later + hour(11)), Some(hour(9)));
        assert_eq!(held.postponed(again, later + hour(20)), None);
    }
}
