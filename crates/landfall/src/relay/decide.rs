//! How a publish outcome settles an entry. Pure, so that every case can be tested.

use landfall_core::adapter::Decision;
use landfall_core::{Backoff, ErrorCode, Outcome};

use super::Options;

/// Errors of the broker that say nothing about the message. It is retried without limit: parking it would only create
/// work for an operator. A missing topic or group appears when its owner creates it.
const BROKER_ERRORS: [ErrorCode; 6] = [
    ErrorCode::UNAVAILABLE,
    ErrorCode::DENIED,
    ErrorCode::STORAGE_FULL,
    ErrorCode::RATE_LIMITED,
    ErrorCode::UNKNOWN_TOPIC,
    ErrorCode::NO_CONSUMER,
];

/// Decides how to settle an entry after `attempts` earlier failures. `None` leaves it unchanged: the broker did not
/// attempt it.
pub(super) fn decide(outcome: &Outcome, attempts: u32, options: &Options, random: f64) -> Option<Decision> {
    let (code, error, retriable) = match outcome {
        Outcome::Accepted(_) => return Some(Decision::Published),
        Outcome::Refused(refusal) if refusal.code == ErrorCode::PREDECESSOR => return None,
        Outcome::Refused(refusal) => (refusal.code.clone(), refusal.reason.clone(), refusal.retriable),
        Outcome::Unknown(reason) => (ErrorCode::UNKNOWN, reason.clone(), true),
    };
    let max_attempts = if BROKER_ERRORS.contains(&code) { u32::MAX } else { options.backoff.max_attempts };
    let backoff = Backoff { max_attempts, ..options.backoff };
    let delay = if retriable { backoff.delay_after(attempts + 1, random) } else { None };
    Some(match delay {
        Some(after) => Decision::Retry { after, error: format!("{code}: {error}") },
        None => Decision::Park { code, error, holds_key: options.failed_holds_key },
    })
}

/// The reason if the broker as a whole is unavailable. Then no attempt is counted for any message.
pub(super) fn outage(outcomes: &[Outcome]) -> Option<&str> {
    let mut reason = None;
    for outcome in outcomes {
        match outcome {
            // A fenced relay starts a new pass, which checks its leases before it publishes again.
            Outcome::Refused(refusal) if [ErrorCode::UNAVAILABLE, ErrorCode::FENCED].contains(&refusal.code) => {
                reason.get_or_insert(refusal.reason.as_str());
            }
            Outcome::Refused(refusal) if refusal.code == ErrorCode::PREDECESSOR => {}
            _ => return None,
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_core::Position;

    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(1), max_attempts: 3 };

    fn decided(outcome: Outcome, attempts: u32) -> Option<Decision> {
        decide(&outcome, attempts, &Options { backoff: BACKOFF, ..Options::default() }, 1.0)
    }

    #[test]
    fn accepted_is_published_and_a_blocked_successor_stays() {
        let accepted = Outcome::Accepted(Position { partition: 0, offset: 7 });
        assert_eq!(decided(accepted, 0), Some(Decision::Published));
        assert_eq!(decided(Outcome::behind_predecessor(), 0), None);
    }

    #[test]
    fn retriable_refusal_and_unknown_are_retried_up_to_the_maximum() {
        let refused = || Outcome::retry_later(ErrorCode::new("busy"), "full");
        let retry = Decision::Retry { after: Duration::from_millis(200), error: "BUSY: full".into() };
        assert_eq!(decided(refused(), 1), Some(retry));
        let park = Decision::Park { code: ErrorCode::new("BUSY"), error: "full".into(), holds_key: true };
        assert_eq!(decided(refused(), 2), Some(park));
        assert!(matches!(decided(Outcome::Unknown("timeout".into()), 0), Some(Decision::Retry { .. })));
        assert!(matches!(decided(Outcome::Unknown("timeout".into()), 2), Some(Decision::Park { .. })));
    }

    #[test]
    fn broker_errors_are_retried_without_limit() {
        for code in BROKER_ERRORS {
            let refused = Outcome::retry_later(code, "for now");
            assert!(matches!(decided(refused, 100_000), Some(Decision::Retry { after, .. }) if after <= BACKOFF.cap));
        }
    }

    #[test]
    fn permanent_refusal_is_parked_at_once() {
        let refused = Outcome::refuse(ErrorCode::TOO_LARGE, "2 MiB");
        assert!(matches!(decided(refused, 0), Some(Decision::Park { .. })));
    }

    #[test]
    fn parked_message_does_not_hold_its_key_when_disabled() {
        let options = Options { failed_holds_key: false, ..Options::default() };
        let decision = decide(&Outcome::refuse(ErrorCode::TOO_LARGE, "2 MiB"), 0, &options, 1.0);
        assert!(matches!(decision, Some(Decision::Park { holds_key: false, .. })));
    }

    #[test]
    fn outage_requires_every_outcome_to_be_unavailable() {
        let down = || Outcome::retry_later(ErrorCode::UNAVAILABLE, "refused");
        assert_eq!(outage(&[down(), Outcome::behind_predecessor()]), Some("refused"));
        let fenced = || Outcome::retry_later(ErrorCode::FENCED, "taken over");
        assert_eq!(outage(&[fenced(), fenced()]), Some("taken over"));
        assert_eq!(outage(&[down(), Outcome::Unknown("?".into())]), None);
        assert_eq!(outage(&[]), None);
    }
}
