use std::time::Duration;

use landfall_core::{Error, ErrorKind, MessageId, Timestamp};

/// How long a question waits for a local transaction that is still open.
pub const BARRIER_WAIT: Duration = Duration::from_secs(1);

/// The clocks of the coordinator and of the business database may differ by this much.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(24 * 3600);

/// Returns whether the barrier row of a half message may have been removed. `removed_before` is the time from before
/// which rows were removed.
pub fn barrier_is_removed(prepared_at: Timestamp, removed_before: Option<Timestamp>) -> bool {
    let difference = CLOCK_DIFFERENCE.as_millis() as i64;
    removed_before.is_some_and(|before| prepared_at.as_millis() < before.as_millis().saturating_add(difference))
}

/// Adds what to do to the error of an insert that found a row.
pub fn barrier_refused(id: MessageId, error: Error) -> Error {
    if error.kind() != ErrorKind::Conflict {
        return error;
    }
    let text = format!(
        "half message {id} is decided: a check-back found no local transaction, or another one has entered the \
         barrier; roll back"
    );
    Error::new(ErrorKind::Conflict, text).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_unknown_within_a_day_of_the_removed_ones() {
        let day = CLOCK_DIFFERENCE.as_millis() as i64;
        let removed = |prepared_at, before: Option<i64>| {
            barrier_is_removed(Timestamp::from_millis(prepared_at), before.map(Timestamp::from_millis))
        };
        assert!(!removed(0, None));
        assert!(removed(999, Some(1000)));
        assert!(removed(999 + day, Some(1000)));
        assert!(!removed(1000 + day, Some(1000)));
    }
}
