//! The conformance suite of a broker: publisher, subscriber, topics and readers.
//!
//! An adapter writes one [`BrokerFixture`] and one line:
//!
//! ```text
//! landfall_testkit::broker_conformance!(LogFixture);
//! ```
//!
//! which expands to one `#[tokio::test]` per case; the adapter's crate needs tokio with `macros` and
//! `rt-multi-thread`. Every case has a broker of its own and must end within [`CASE_LIMIT`]. Cases that need a
//! capability which the broker does not declare end at once.

mod fixture;
mod stage;

pub mod deliver;
pub mod durable;
pub mod publish;
pub mod read;
pub mod redeliver;

use std::time::Duration;

pub use fixture::BrokerFixture;
pub use stage::Stage;

/// What a case may take; one that hangs has failed.
pub const CASE_LIMIT: Duration = Duration::from_secs(600);

/// Runs one case on a broker of its own. What the macro's tests call.
pub async fn run<F: BrokerFixture, C: AsyncFnOnce(Stage<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let stage = Stage::set(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(stage)).await.expect("the case took longer than its limit");
}

/// One test per case of the broker suite, for the [`BrokerFixture`](crate::conformance::broker::BrokerFixture) that
/// is named.
#[macro_export]
macro_rules! broker_conformance {
    ($fixture:ty) => {
        $crate::broker_conformance! { @groups $fixture;
            publish:
                every_message_has_one_outcome_in_order,
                every_message_stands_where_its_outcome_said,
                an_empty_batch_has_an_empty_answer,
                what_is_too_large_is_refused_and_holds_back_only_its_key,
                a_copy_is_accepted_and_not_stored_again,
                each_send_of_a_message_that_was_moved_aside_is_stored,
                everything_about_a_message_survives_the_broker,
                the_order_of_a_key_survives_many_publishers;
            deliver:
                what_was_published_is_delivered_in_order_per_key,
                a_new_group_starts_at_the_beginning,
                a_subscriber_may_come_before_its_topic,
                groups_are_independent,
                messages_without_a_key_are_delivered,
                members_of_a_group_get_everything_between_them,
                a_delivery_knows_its_position,
                dropping_the_future_of_next_loses_nothing;
            redeliver:
                what_was_acknowledged_is_not_delivered_to_the_next_member,
                a_dropped_delivery_comes_again,
                what_a_closed_subscriber_left_comes_to_the_next_member,
                what_a_dropped_subscriber_left_comes_to_the_next_member,
                what_was_given_back_comes_again_after_its_delay,
                giving_one_back_does_not_hold_up_other_keys,
                an_acknowledgement_out_of_order_loses_nothing;
            durable:
                what_was_accepted_is_there_after_a_restart,
                what_was_acknowledged_is_not_delivered_after_a_restart,
                what_was_not_acknowledged_is_delivered_after_a_restart,
                an_acknowledgement_out_of_order_loses_nothing_in_a_restart,
                offsets_go_on_after_a_restart;
            read:
                topics_are_listed_by_name_with_their_size,
                a_reader_from_the_beginning_sees_everything_in_order,
                a_reader_from_the_end_sees_only_what_comes,
                a_reader_from_an_offset_sees_the_rest,
                a_reader_from_a_time_sees_what_was_taken_since,
                reading_takes_nothing_from_a_group;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::conformance::broker::run::<$fixture, _>($crate::conformance::broker::$group::$case).await;
            }
        )+)+
    };
}
