//! The budget against a list of all events.

use std::time::{Duration, Instant};

use landfall_core::{Budget, BudgetOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const WINDOW: Duration = Duration::from_secs(1);
const CAP: i64 = 6;
const OPTIONS: BudgetOptions = BudgetOptions { ratio: 0.5, floor: 2, cap: CAP as u32, window: WINDOW };

/// What the checker drives: the real budget and the planted bugs.
trait Retries {
    fn succeeded(&mut self, now: Instant);
    fn take(&mut self, now: Instant) -> bool;
    fn left(&mut self, now: Instant) -> i64;
}

impl Retries for Budget {
    fn succeeded(&mut self, now: Instant) {
        Budget::succeeded(self, now);
    }

    fn take(&mut self, now: Instant) -> bool {
        Budget::take(self, now)
    }

    fn left(&mut self, now: Instant) -> i64 {
        Budget::left(self, now) as i64
    }
}

/// Elapsed milliseconds, then a success (`true`) or a request for a retry.
type Step = (u64, bool);

fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((prop_oneof![4 => 0..5_u64, 2 => 0..300_u64, 1 => 900..1400_u64], any::<bool>()), 0..200)
}

/// The model is exact to the millisecond, the budget counts in buckets. The budget may refuse up to one bucket more
/// than the model and never allows more.
fn check(mut budget: impl Retries, history: &[Step]) -> Result<(), String> {
    let start = Instant::now();
    let (mut passed, mut successes, mut retries) = (0_u64, Vec::new(), Vec::new());
    for (millis, success) in history {
        passed += millis;
        let now = start + Duration::from_millis(passed);
        let within = |events: &[u64], window: u64| events.iter().filter(|time| **time + window > passed).count() as i64;
        let left = budget.left(now);
        if left < 0 {
            return Err(format!("after {passed} ms {left} retries are left"));
        }
        if *success {
            budget.succeeded(now);
            successes.push(passed);
            continue;
        }
        let most = (within(&successes, 1000) / 2 + 2).min(CAP) - within(&retries, 1000);
        let least = (within(&successes, 900) / 2 + 2).min(CAP) - within(&retries, 1100);
        let allowed = budget.take(now);
        if allowed {
            retries.push(passed);
        }
        if allowed && most < 1 {
            return Err(format!("after {passed} ms a retry too many was allowed"));
        }
        if !allowed && least > 0 {
            return Err(format!("after {passed} ms a retry was refused though {least} were left"));
        }
        if left > most.max(0) || left < least {
            return Err(format!("after {passed} ms {left} were left, not {least} to {most}"));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn retries_stay_within_ratio_floor_and_cap_of_any_window(history in history()) {
        check(Budget::new(OPTIONS), &history).map_err(TestCaseError::fail)?;
    }
}

/// Returns whether generated histories find the planted bug.
fn is_caught<B: Retries>(planted: impl Fn() -> B) -> bool {
    TestRunner::new(Config { failure_persistence: None, ..Config::default() })
        .run(&history(), |history| check(planted(), &history).map_err(TestCaseError::fail))
        .is_err()
}

#[test]
fn budget_that_never_expires_is_caught() {
    let forever = BudgetOptions { window: Duration::from_secs(86_400), ..OPTIONS };
    assert!(is_caught(|| Budget::new(forever)));
}

/// A planted bug: expired successes reduce the balance even if it was spent, and a negative balance allows retries.
#[derive(Default)]
struct Overdrawn {
    left: i64,
    earned: Vec<Instant>,
}

impl Retries for Overdrawn {
    fn succeeded(&mut self, now: Instant) {
        self.earned.push(now);
        self.left += i64::from(self.earned.len().is_multiple_of(2));
    }

    fn take(&mut self, now: Instant) -> bool {
        let allowed = self.left(now) != 0;
        self.left -= i64::from(allowed);
        allowed
    }

    fn left(&mut self, now: Instant) -> i64 {
        let before = self.earned.len() as i64 / 2;
        self.earned.retain(|earned| now.duration_since(*earned) < WINDOW);
        self.left -= before - self.earned.len() as i64 / 2;
        self.left
    }
}

#[test]
fn negative_budget_is_caught() {
    assert!(is_caught(Overdrawn::default));
}

#[test]
fn budget_without_a_cap_is_caught() {
    assert!(is_caught(|| Budget::new(BudgetOptions { cap: u32::MAX, ..OPTIONS })));
}

#[test]
fn unlimited_budget_and_missing_floor_are_caught() {
    assert!(is_caught(|| Budget::new(BudgetOptions { ratio: f64::MAX, ..OPTIONS })));
    assert!(is_caught(|| Budget::new(BudgetOptions { floor: 0, ..OPTIONS })));
}

#[test]
fn invalid_ratio_counts_as_zero() {
    for ratio in [f64::NAN, -1.0, f64::NEG_INFINITY] {
        let mut budget = Budget::new(BudgetOptions { ratio, ..OPTIONS });
        let now = Instant::now();
        (0..100).for_each(|_| budget.succeeded(now));
        assert_eq!(budget.left(now), 2, "{ratio}");
    }
}
