//! The rules of records, shared by every store. Pure: a store reads, asks here, and writes with a compare-and-set.

use std::time::Duration;

use super::{Claim, Epoch, Fingerprint, Outcome, RecordState, Settled, Snapshot};

/// A record as a store has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub state: RecordState,
    pub epoch: Epoch,
    /// `None` for a token that was never claimed.
    pub fingerprint: Option<Fingerprint>,
    /// Whether work with an unknown outcome waits for a person.
    pub parks: bool,
    /// Until the lease or the token expires; zero if it has.
    pub remaining: Duration,
    /// Of a completed record.
    pub answer: Option<Snapshot>,
}

/// What a claim does with a stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Return this; write nothing.
    Answer(Claim),
    /// Write the next epoch, if the record has still this epoch and this state, and its lease has not been renewed.
    TakeOver,
}

/// Decides about a claim. The fingerprint is compared first, whatever the state. Only a released record forgets it: a
/// request that was refused as invalid may be corrected.
pub fn decide(stored: &StoredRecord, fingerprint: &Fingerprint) -> Decision {
    let is_expired = stored.remaining.is_zero();
    let is_bound = !matches!(stored.state, RecordState::Released | RecordState::Issued);
    if is_bound && stored.fingerprint.as_ref().is_some_and(|known| known != fingerprint) {
        return Decision::Answer(Claim::Mismatch);
    }
    match stored.state {
        RecordState::Issued if is_expired => Decision::Answer(Claim::NotIssued),
        RecordState::Issued | RecordState::Released => Decision::TakeOver,
        RecordState::InFlight if !is_expired => Decision::Answer(Claim::InFlight { remaining: stored.remaining }),
        RecordState::InFlight if stored.parks => Decision::Answer(Claim::Uncertain),
        RecordState::InFlight => Decision::TakeOver,
        RecordState::Uncertain => Decision::Answer(Claim::Uncertain),
        RecordState::Completed => Decision::Answer(stored.answer.clone().map_or(Claim::Uncertain, Claim::Completed)),
    }
}

/// Decides about a settle under `epoch` that changed no row, because of what is stored now.
///
/// A caller whose connection broke repeats its settle, so an equal outcome under the same epoch counts as recorded.
pub fn settled(stored: Option<StoredRecord>, epoch: Epoch, outcome: &Outcome) -> Settled {
    let Some(stored) = stored else { return Settled::Lost(None) };
    let is_repeat = stored.epoch == epoch
        && match outcome {
            Outcome::Done(_) => stored.state == RecordState::Completed,
            Outcome::NothingDone => stored.state == RecordState::Released,
            Outcome::Unknown(_) => false,
        };
    if is_repeat { Settled::Recorded } else { Settled::Lost(stored.answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Fingerprint = [1; 32];
    const OTHER: Fingerprint = [2; 32];
    const SECOND: Duration = Duration::from_secs(1);

    fn record(state: RecordState, remaining: Duration, parks: bool) -> StoredRecord {
        let answer = (state == RecordState::Completed).then(|| Snapshot::from_bytes("1"));
        StoredRecord { state, epoch: 7, fingerprint: Some(MINE), parks, remaining, answer }
    }

    #[test]
    fn fingerprint_is_compared_first_in_every_bound_state() {
        for state in [RecordState::InFlight, RecordState::Completed, RecordState::Uncertain] {
            for remaining in [Duration::ZERO, SECOND] {
                for parks in [false, true] {
                    let decision = decide(&record(state, remaining, parks), &OTHER);
                    assert_eq!(decision, Decision::Answer(Claim::Mismatch), "{state:?}");
                }
            }
        }
        assert_eq!(decide(&record(RecordState::Released, Duration::ZERO, true), &OTHER), Decision::TakeOver);
    }

    #[test]
    fn expired_attempt_is_rerun_or_uncertain_by_its_policy() {
        let decision = |remaining, parks| decide(&record(RecordState::InFlight, remaining, parks), &MINE);
        assert_eq!(decision(SECOND, false), Decision::Answer(Claim::InFlight { remaining: SECOND }));
        assert_eq!(decision(SECOND, true), Decision::Answer(Claim::InFlight { remaining: SECOND }));
        assert_eq!(decision(Duration::ZERO, false), Decision::TakeOver);
        assert_eq!(decision(Duration::ZERO, true), Decision::Answer(Claim::Uncertain));
    }

    #[test]
    fn only_an_unexpired_token_is_claimed() {
        let token = |remaining| StoredRecord { fingerprint: None, ..record(RecordState::Issued, remaining, false) };
        assert_eq!(decide(&token(SECOND), &MINE), Decision::TakeOver);
        assert_eq!(decide(&token(Duration::ZERO), &MINE), Decision::Answer(Claim::NotIssued));
    }

    #[test]
    fn repeated_settle_is_recorded_and_a_stale_one_is_lost() {
        let done = Outcome::Done(Snapshot::from_bytes("2"));
        let completed = || Some(record(RecordState::Completed, Duration::ZERO, false));
        assert_eq!(settled(completed(), 7, &done), Settled::Recorded);
        assert_eq!(settled(completed(), 6, &done), Settled::Lost(Some(Snapshot::from_bytes("1"))));
        assert_eq!(settled(completed(), 7, &Outcome::NothingDone), Settled::Lost(Some(Snapshot::from_bytes("1"))));
        let released = || Some(record(RecordState::Released, Duration::ZERO, false));
        assert_eq!(settled(released(), 7, &Outcome::NothingDone), Settled::Recorded);
        assert_eq!(settled(released(), 7, &done), Settled::Lost(None));
        assert_eq!(settled(None, 7, &done), Settled::Lost(None));
    }
}
