//! When a job stops by itself.

use crate::RedriveCounts;

/// A job stops when too many of its letters fail, or when one fails in a way that no selected letter had failed before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRule {
    /// The share of failed letters above which it stops, in percent.
    pub failed_percent: u64,
    /// The share counts from this many letters with an outcome.
    pub at_least: u64,
    /// Whether an error that is new to the job stops it.
    pub on_new_fingerprint: bool,
}

impl Default for StopRule {
    fn default() -> Self {
        Self { failed_percent: 5, at_least: 20, on_new_fingerprint: true }
    }
}

impl StopRule {
    /// Returns why the job stops, if it does. `new` is the fingerprint of an error that is new to it.
    pub fn reason(&self, counts: &RedriveCounts, new: Option<&str>) -> Option<String> {
        if let Some(new) = new.filter(|_| self.on_new_fingerprint) {
            return Some(format!("a letter failed in a new way, fingerprint {new}"));
        }
        let (failed, handled) = (counts.failed, counts.failed + counts.succeeded);
        let is_over = handled >= self.at_least && failed * 100 > handled * self.failed_percent;
        is_over.then(|| format!("{failed} of {handled} letters failed, more than {} %", self.failed_percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_counts_from_twenty_letters() {
        let reason = |succeeded, failed| {
            StopRule::default().reason(&RedriveCounts { succeeded, failed, ..RedriveCounts::default() }, None)
        };
        assert_eq!((reason(0, 19), reason(19, 1), reason(38, 2)), (None, None, None));
        assert!(reason(18, 2).is_some_and(|why| why.contains("2 of 20")));
        assert!(reason(0, 20).is_some());
    }

    #[test]
    fn new_error_stops_at_once_unless_allowed() {
        let counts = RedriveCounts { failed: 1, ..RedriveCounts::default() };
        assert!(StopRule::default().reason(&counts, Some("1-ab")).is_some_and(|why| why.contains("1-ab")));
        let lenient = StopRule { on_new_fingerprint: false, ..StopRule::default() };
        assert_eq!(lenient.reason(&counts, Some("1-ab")), None);
    }
}
