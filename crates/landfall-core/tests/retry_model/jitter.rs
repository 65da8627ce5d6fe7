//! Delays against their definition, and `longest` against the sum of the longest delays.

use std::time::Duration;

use landfall_core::{Backoff, Failed, Jitter, RetryPolicy};
use proptest::prelude::*;

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let jitter = prop::sample::select(vec![Jitter::Half, Jitter::Full, Jitter::Decorrelated]);
    let deadline = prop::option::of((0..100_000_u64).prop_map(Duration::from_millis));
    let asked = prop_oneof![Just(0), 0..20_000_u64].prop_map(Duration::from_millis);
    (1..1000_u64, 0..20_000_u64, 0..60_u32, jitter, deadline, asked).prop_map(
        |(first, more, max_attempts, jitter, deadline, retry_after_cap)| {
            let first = Duration::from_millis(first);
            let backoff = Backoff { first, cap: first + Duration::from_millis(more), max_attempts };
            RetryPolicy { backoff, jitter, deadline, retry_after_cap }
        },
    )
}

/// Returns all delays of a call that keeps failing, each time with the same `Retry-After`.
fn delays(policy: &RetryPolicy, randoms: &[f64], retry_after: Option<Duration>) -> Vec<Duration> {
    let (mut delays, mut elapsed, mut previous) = (Vec::new(), Duration::ZERO, None);
    let mut randoms = randoms.iter().cycle();
    loop {
        let failed = Failed { attempts: delays.len() as u32 + 1, elapsed, previous, retry_after };
        let Some(delay) = policy.delay_after(failed, *randoms.next().unwrap_or(&1.0)) else { return delays };
        elapsed += delay;
        previous = Some(delay);
        delays.push(delay);
    }
}

proptest! {
    #[test]
    fn no_sequence_of_delays_is_longer_than_the_longest(
        policy in policies(),
        randoms in prop::collection::vec(0.0..1.0_f64, 1..20),
        asked in prop::option::of(0..100_000_u64),
    ) {
        let asked = asked.map(Duration::from_millis);
        let sum: Duration = delays(&policy, &randoms, asked).iter().sum();
        prop_assert!(sum <= policy.longest(), "{sum:?} is more than {:?}", policy.longest());
    }

    #[test]
    fn longest_is_reached_in_the_worst_case(policy in policies()) {
        let policy = RetryPolicy { deadline: None, ..policy };
        let sum: Duration = delays(&policy, &[1.0], Some(Duration::MAX)).iter().sum();
        prop_assert_eq!(sum, policy.longest());
    }

    #[test]
    fn longest_without_retry_after_is_the_backoffs(policy in policies()) {
        let plain = RetryPolicy { deadline: None, jitter: Jitter::Half, retry_after_cap: Duration::ZERO, ..policy };
        prop_assert_eq!(plain.longest(), plain.backoff.longest());
    }

    #[test]
    fn every_delay_stays_between_its_bounds(
        policy in policies(),
        randoms in prop::collection::vec(0.0..1.0_f64, 1..20),
    ) {
        let Backoff { first, cap, max_attempts } = policy.backoff;
        let delays = delays(&policy, &randoms, None);
        prop_assert!(delays.len() < max_attempts.max(1) as usize);
        for (before, delay) in delays.iter().enumerate() {
            prop_assert!(*delay <= cap);
            let doubled = first.saturating_mul(1 << before.min(31)).min(cap);
            match policy.jitter {
                Jitter::Full => prop_assert!(*delay <= doubled),
                Jitter::Half => prop_assert!(*delay <= doubled && *delay >= doubled / 2),
                Jitter::Decorrelated => {
                    let last = if before == 0 { first } else { delays[before - 1] };
                    prop_assert!(*delay >= first && *delay <= (last * 3).min(cap));
                }
            }
        }
    }

    #[test]
    fn no_attempt_starts_after_the_deadline(
        policy in policies(),
        randoms in prop::collection::vec(0.0..1.0_f64, 1..20),
    ) {
        let sum: Duration = delays(&policy, &randoms, None).iter().sum();
        prop_assert!(policy.deadline.is_none_or(|deadline| sum <= deadline));
    }
}
