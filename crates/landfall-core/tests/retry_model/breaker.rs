//! The breaker against its model.

use std::time::{Duration, Instant};

use landfall_core::{Breaker, BreakerOptions, BreakerState};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::breaker_model::Model;

const OPTIONS: BreakerOptions = BreakerOptions {
    window: Duration::from_secs(1),
    minimum_calls: 4,
    failure_rate: 0.5,
    open_first: Duration::from_millis(200),
    open_cap: Duration::from_millis(1600),
    probes: 2,
    probe_interval: Duration::from_millis(20),
    successes_to_close: 3,
    probe_timeout: Duration::from_millis(500),
};

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Call,
    /// The call at this index of those in flight ends.
    End {
        call: usize,
        failed: bool,
    },
    /// The call at this index of those in flight never ends.
    Vanish(usize),
}

/// Uses halves and quarters, so that results do not depend on rounding.
fn histories() -> impl Strategy<Value = (Vec<Step>, f64)> {
    let step = prop_oneof![
        1 => (0..50_u64).prop_map(Step::Pass),
        1 => (100..700_u64).prop_map(Step::Pass),
        5 => Just(Step::Call),
        3 => (0..4_usize).prop_map(|call| Step::End { call, failed: true }),
        3 => (0..4_usize).prop_map(|call| Step::End { call, failed: false }),
        1 => (0..4_usize).prop_map(Step::Vanish),
    ];
    (prop::collection::vec(step, 0..200), prop::sample::select(vec![0.0, 0.25, 0.5]))
}

/// Drives breaker and model with the same history; `Err` at the first difference.
fn check(mut breaker: Breaker, steps: &[Step], random: f64) -> Result<Visited, String> {
    let start = Instant::now();
    let (mut model, mut now, mut under_way, mut visited) = (Model::new(OPTIONS), 0, Vec::new(), Visited::default());
    breaker.state(start);
    for (number, step) in steps.iter().enumerate() {
        if let Step::Pass(millis) = step {
            now += millis;
        }
        let instant = start + Duration::from_millis(now);
        model.pass(now);
        match step {
            Step::Pass(_) => {}
            Step::Call => match (breaker.admit(instant), model.admit(number, now)) {
                (Ok(ticket), Some(age)) => under_way.push((number, ticket, age)),
                (Err(_), None) => {}
                (ticket, _) => return Err(format!("after {now} ms a call should not have been {ticket:?}")),
            },
            Step::End { call, failed } if *call < under_way.len() => {
                let (number, ticket, age) = under_way.remove(*call);
                if *failed {
                    breaker.failed(ticket, instant, random);
                } else {
                    breaker.succeeded(ticket, instant);
                }
                model.report(number, age, *failed, now, random);
            }
            Step::Vanish(call) if *call < under_way.len() => drop(under_way.remove(*call)),
            Step::End { .. } | Step::Vanish(_) => {}
        }
        let (is, should_be) = (breaker.state(instant), model.state());
        if is != should_be {
            return Err(format!("after {now} ms it is {is:?} and should be {should_be:?}"));
        }
        visited.see(is);
    }
    Ok(visited)
}

/// Counts state changes, so that histories that never leave `Closed` do not count as proof.
#[derive(Debug, Default, Clone, Copy)]
struct Visited {
    last: Option<BreakerState>,
    opened: u32,
    closed_again: u32,
}

impl Visited {
    fn see(&mut self, state: BreakerState) {
        let before = self.last.replace(state);
        self.opened += u32::from(before != Some(state) && state == BreakerState::Open);
        self.closed_again += u32::from(before == Some(BreakerState::HalfOpen) && state == BreakerState::Closed);
    }
}

#[test]
fn breaker_matches_its_model_in_every_history() {
    let (opened, closed_again) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let mut runner = TestRunner::new(config());
    let result = runner.run(&histories(), |(steps, random)| {
        let visited = check(Breaker::new(OPTIONS), &steps, random).map_err(TestCaseError::fail)?;
        opened.set(opened.get() + visited.opened);
        closed_again.set(closed_again.get() + visited.closed_again);
        Ok(())
    });
    result.unwrap();
    assert!(opened.get() > 100, "the histories opened it only {} times", opened.get());
    assert!(closed_again.get() > 50, "the histories closed it only {} times", closed_again.get());
}

/// A failure prints its history, so no regression files are kept.
fn config() -> Config {
    Config { failure_persistence: None, ..Config::with_cases(1000) }
}

/// Returns whether generated histories find the planted bug.
fn is_caught(planted: BreakerOptions) -> bool {
    let mut runner = TestRunner::new(config());
    runner
        .run(&histories(), |(steps, random)| {
            check(Breaker::new(planted), &steps, random).map(drop).map_err(TestCaseError::fail)
        })
        .is_err()
}

#[test]
fn window_that_never_expires_is_caught() {
    assert!(is_caught(BreakerOptions { window: Duration::from_secs(86_400), ..OPTIONS }));
}

#[test]
fn unlimited_probes_are_caught() {
    assert!(is_caught(BreakerOptions { probes: u32::MAX, ..OPTIONS }));
}

#[test]
fn probes_without_an_interval_are_caught() {
    assert!(is_caught(BreakerOptions { probe_interval: Duration::ZERO, ..OPTIONS }));
}

#[test]
fn probe_without_a_timeout_is_caught() {
    assert!(is_caught(BreakerOptions { probe_timeout: Duration::MAX, ..OPTIONS }));
}

#[test]
fn wrong_thresholds_are_caught() {
    assert!(is_caught(BreakerOptions { minimum_calls: 3, ..OPTIONS }));
    assert!(is_caught(BreakerOptions { successes_to_close: 1, ..OPTIONS }));
}

#[test]
fn open_breaker_reports_when_to_retry() {
    let (mut breaker, now) = (Breaker::new(OPTIONS), Instant::now());
    for _ in 0..4 {
        let ticket = breaker.admit(now).unwrap();
        breaker.failed(ticket, now, 1.0);
    }
    assert_eq!(breaker.admit(now).unwrap_err().retry_after, Some(OPTIONS.open_first));
    let (half_open, interval) = (now + OPTIONS.open_first, OPTIONS.probe_interval);
    let first = breaker.admit(half_open).unwrap();
    assert_eq!(breaker.admit(half_open).unwrap_err().retry_after, Some(interval), "one probe per interval");
    let second = breaker.admit(half_open + interval).unwrap();
    let later = half_open + 2 * interval;
    assert_eq!(breaker.admit(later).unwrap_err().retry_after, None, "two probes are in flight");
    for probe in [first, second] {
        breaker.abandoned(probe);
    }
    assert!(breaker.admit(later).is_ok(), "an abandoned probe frees its place at once");
}
