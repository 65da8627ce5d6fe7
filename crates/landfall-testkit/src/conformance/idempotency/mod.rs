//! The conformance suite of a store of idempotency records: claims, fencing, answers, tokens and retention.
//!
//! A store implements a [`RecordsFixture`]; a database has one already, [`OfDatabase`]. Its tests call:
//!
//! ```text
//! landfall_testkit::idempotency_conformance!(OfDatabase<SqliteFixture>);
//! ```
//!
//! The macro expands to one `#[tokio::test]` per case. Every case runs on a new store.

mod fixture;

pub mod claim;
pub mod expiry;
pub mod lease;
pub mod settle;
pub mod token;
pub mod view;

use super::database::CASE_LIMIT;

pub use fixture::{OfDatabase, RecordsFixture, Steps};

/// Runs one case on a new store. The tests that the macro generates call this.
pub async fn run<F: RecordsFixture, C: AsyncFnOnce(Steps<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let steps = Steps::new(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(steps)).await.expect("the case exceeded its time limit");
}

/// Generates one test per case of the suite for a
/// [`RecordsFixture`](crate::conformance::idempotency::RecordsFixture).
#[macro_export]
macro_rules! idempotency_conformance {
    ($fixture:ty) => {
        $crate::idempotency_conformance! { @groups $fixture;
            claim:
                repeat_replays_the_answer_byte_for_byte,
                hundred_concurrent_claims_have_one_winner,
                other_fingerprint_is_refused_in_every_state,
                scopes_types_and_kinds_have_their_own_keys,
                released_key_runs_again_with_a_corrected_request,
                attempt_in_flight_reports_the_rest_of_its_lease;
            lease:
                expired_attempt_is_rerun_under_a_higher_epoch,
                expired_attempt_is_uncertain_if_it_asked_for_that,
                concurrent_takeovers_have_one_winner,
                stale_attempt_settles_nothing,
                expired_but_unclaimed_attempt_still_settles,
                renewal_outlives_the_lease,
                ceiling_ends_the_renewals,
                lost_attempt_is_not_renewed;
            settle:
                repeated_settle_is_recorded_once,
                unknown_outcome_follows_the_policy,
                answer_without_a_body_is_known_as_done,
                person_resolves_an_uncertain_record,
                resolved_attempt_can_settle_no_more;
            token:
                token_is_consumed_once_and_replays,
                token_of_another_business_is_unknown,
                expired_token_is_refused,
                failed_work_gives_the_token_back,
                concurrent_consumers_of_a_token_have_one_winner;
            expiry:
                expired_answer_is_known_as_done,
                expired_key_runs_again_under_a_higher_epoch,
                open_and_uncertain_records_do_not_expire;
            view:
                record_filters_return_matching_records,
                record_pages_return_each_record_once,
                uncertain_records_are_counted;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::conformance::idempotency::run::<$fixture, _>(
                    $crate::conformance::idempotency::$group::$case,
                )
                .await;
            }
        )+)+
    };
}
