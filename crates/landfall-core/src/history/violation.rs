//! Marks violations that a checker found, so that a second attempt never hides them.

use std::fmt::Display;

/// The mark at the start of a violation's report.
///
/// `scripts/test` runs a failed test once more and tolerates the failure if it then passes, unless its output contains
/// this mark.
pub const VIOLATION: &str = "landfall-violation:";

/// Asserts that a checker found no lost, doubled, reordered, phantom or damaged message.
///
/// For results that no slow machine can explain. A wait that timed out is a plain assertion.
///
/// # Panics
///
/// With the mark [`VIOLATION`] and the report, unless `is_clean`.
#[track_caller]
pub fn assert_no_violation(is_clean: bool, report: impl Display) {
    assert!(is_clean, "{VIOLATION} {report}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "landfall-violation: message 7 is lost")]
    fn violation_is_reported_with_its_mark() {
        assert_no_violation(false, "message 7 is lost");
    }
}
