//! Guards against redrives that cannot succeed.

use std::time::Duration;

use crate::{DeadLetterStatus, Timestamp};

/// Limits that a job respects. A person who redrives one letter by its id is not bound by them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveGuards {
    /// A letter that was redriven this often is left to a person.
    pub max_redrives: u32,
    /// A letter that a redrive has failed on rests for this long.
    pub cool_down: Duration,
    /// After this many failed redrives in a row its key is blocked.
    pub block_after: u32,
    /// How long a key stays blocked.
    pub block_for: Duration,
    /// Letters first seen longer ago are left alone: duplicates of them may no longer be recognized.
    pub max_age: Option<Duration>,
}

/// What the guards compare.
#[derive(Debug, Clone, Copy)]
pub struct Guarded {
    pub status: DeadLetterStatus,
    pub redrives: u32,
    pub first_seen: Timestamp,
    pub last_attempt: Timestamp,
}

impl Default for RedriveGuards {
    fn default() -> Self {
        Self {
            max_redrives: 10,
            cool_down: Duration::from_secs(60),
            block_after: 3,
            block_for: Duration::from_secs(3600),
            max_age: None,
        }
    }
}

/// Why a letter was not handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Skip {
    /// Another redrive, a discard or the consumer changed it first.
    NotParked,
    /// A person ignored it.
    Ignored,
    /// Redriven [`RedriveGuards::max_redrives`] times.
    Limit,
    /// Failed within [`RedriveGuards::cool_down`].
    CoolDown,
    /// Failed [`RedriveGuards::block_after`] times in a row, the last time within [`RedriveGuards::block_for`].
    Blocked,
    /// First seen longer ago than [`RedriveGuards::max_age`].
    TooOld,
    /// An earlier letter of its key is parked and not part of the job, or was not redriven by it.
    Predecessor,
}

impl Skip {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotParked => "not-parked",
            Self::Ignored => "ignored",
            Self::Limit => "limit",
            Self::CoolDown => "cool-down",
            Self::Blocked => "blocked",
            Self::TooOld => "too-old",
            Self::Predecessor => "predecessor",
        }
    }
}

impl RedriveGuards {
    /// Returns why a letter in this state is not redriven; `None` if it may be.
    pub fn refuse(&self, letter: Guarded, now: Timestamp) -> Option<Skip> {
        let Guarded { status, redrives, first_seen, last_attempt } = letter;
        let rested = last_attempt.elapsed_since(now);
        match status {
            DeadLetterStatus::Parked => {}
            DeadLetterStatus::Ignored => return Some(Skip::Ignored),
            _ => return Some(Skip::NotParked),
        }
        if self.max_age.is_some_and(|most| first_seen.elapsed_since(now) > most) {
            Some(Skip::TooOld)
        } else if redrives >= self.max_redrives {
            Some(Skip::Limit)
        } else if redrives >= self.block_after && rested < self.block_for {
            Some(Skip::Blocked)
        } else if redrives > 0 && rested < self.cool_down {
            Some(Skip::CoolDown)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_expire_except_for_the_limit() {
        let (guards, now) = (RedriveGuards::default(), Timestamp::from_millis(10_000_000));
        let parked = |redrives, seconds: i64| {
            let last = Timestamp::from_millis(now.as_millis() - seconds * 1000);
            let status = DeadLetterStatus::Parked;
            guards.refuse(Guarded { status, redrives, first_seen: last, last_attempt: last }, now)
        };
        assert_eq!(parked(0, 0), None, "a first redrive needs no rest");
        assert_eq!((parked(1, 59), parked(1, 60)), (Some(Skip::CoolDown), None));
        assert_eq!((parked(3, 60), parked(3, 3599), parked(3, 3600)), (Some(Skip::Blocked), Some(Skip::Blocked), None));
        assert_eq!(parked(10, 1_000_000), Some(Skip::Limit));
        let other = |status| guards.refuse(Guarded { status, redrives: 0, first_seen: now, last_attempt: now }, now);
        assert_eq!(other(DeadLetterStatus::Ignored), Some(Skip::Ignored));
        assert_eq!(other(DeadLetterStatus::Redriving), Some(Skip::NotParked));
        let guards = RedriveGuards { max_age: Some(Duration::from_secs(60)), ..guards };
        let first_seen = Timestamp::from_millis(now.as_millis() - 60_001);
        let old = Guarded { status: DeadLetterStatus::Parked, redrives: 0, first_seen, last_attempt: now };
        assert_eq!(guards.refuse(old, now), Some(Skip::TooOld));
    }
}
