//! The conformance suite of a broker: publisher, subscriber, topics and readers.
//!
//! An adapter implements a [`BrokerFixture`] and calls:
//!
//! ```text
//! landfall_testkit::broker_conformance!(LogFixture);
//! ```
//!
//! The macro expands to one `#[tokio::test]` per case. The adapter's crate needs tokio with `macros` and
//! `rt-multi-thread`. Every case runs on a new broker and must end within [`CASE_LIMIT`].
//! A broker that lacks a capability declares it, with the reason; the cases that need it are then ignored:
//!
//! ```text
//! landfall_testkit::broker_conformance!(QueueFixture, without replay: "no `replay`: the queue keeps no history");
//! ```

mod fixture;
mod harness;

pub mod deliver;
pub mod durable;
pub mod publish;
pub mod read;
pub mod redeliver;

use std::time::Duration;

use super::capabilities::assert_declared;

pub use fixture::BrokerFixture;
pub use harness::Harness;

/// The time limit of a case; a case that hangs fails.
pub const CASE_LIMIT: Duration = Duration::from_secs(600);

/// Runs one case on a new broker. The tests that the macro generates call this.
pub async fn run<F: BrokerFixture, C: AsyncFnOnce(Harness<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let harness = Harness::new(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(harness)).await.expect("the case exceeded its time limit");
}

/// Asserts that the broker lacks exactly the `declared` capabilities. A test that the macro generates calls this.
pub async fn check_declaration<F: BrokerFixture>(declared: &[&str]) {
    let Some(fixture) = F::create().await else { return };
    let found = fixture.broker().capabilities();
    let present = [
        ("ordered_by_key", found.ordered_by_key),
        ("durable", found.durable),
        ("delayed_redelivery", found.delayed_redelivery),
        ("replay", found.replay),
        ("groups", found.groups),
        ("deduplicates", found.deduplicates),
        ("payload_bytes", found.payload_bytes.is_some()),
    ];
    assert_declared(declared, &present);
}

/// Generates one test per case of the broker suite for a
/// [`BrokerFixture`](crate::conformance::broker::BrokerFixture).
#[macro_export]
macro_rules! broker_conformance {
    ($fixture:ty $(, without $($lacking:ident: $reason:literal),+)?) => {
        $crate::conformance_case! { $($($lacking: $reason),+)? }

        #[::tokio::test(flavor = "multi_thread")]
        async fn declared_capabilities_are_those_of_the_adapter() {
            $crate::conformance::broker::check_declaration::<$fixture>(&[$($(stringify!($lacking)),+)?]).await;
        }

        $crate::broker_conformance! { @groups $fixture;
            publish:
                publish_returns_one_outcome_per_message_in_order,
                message_is_stored_at_the_position_of_its_outcome needs replay,
                empty_batch_returns_no_outcomes,
                oversized_message_is_refused_and_blocks_only_its_key needs payload_bytes,
                duplicate_is_accepted_and_stored_once needs deduplicates,
                retry_of_a_failed_message_is_not_deduplicated,
                all_message_fields_survive_the_broker,
                key_order_holds_with_many_publishers needs ordered_by_key;
            deliver:
                published_messages_are_delivered_in_key_order,
                new_group_starts_at_the_beginning needs replay,
                subscriber_can_join_before_its_topic_exists,
                groups_are_independent needs groups,
                keyless_messages_are_delivered,
                group_members_share_all_messages,
                delivery_carries_its_position needs replay,
                next_is_cancellation_safe;
            redeliver:
                acked_message_is_not_redelivered_to_the_next_member,
                dropped_delivery_is_redelivered,
                unacked_messages_of_a_closed_subscriber_are_redelivered,
                unacked_messages_of_a_dropped_subscriber_are_redelivered,
                nacked_message_is_redelivered_after_its_delay,
                nack_delay_does_not_block_other_keys needs delayed_redelivery,
                out_of_order_ack_loses_nothing;
            durable:
                accepted_messages_survive_a_restart needs durable,
                acked_messages_are_not_redelivered_after_a_restart needs durable,
                unacked_messages_are_redelivered_after_a_restart needs durable,
                out_of_order_ack_loses_nothing_in_a_restart needs durable,
                offsets_continue_after_a_restart needs durable and replay;
            read:
                topics_are_listed_by_name_with_their_size,
                reader_from_the_beginning_reads_everything_in_order needs replay,
                reader_from_the_end_reads_only_new_messages needs replay,
                reader_from_an_offset_reads_the_rest needs replay,
                reader_from_a_time_reads_messages_stored_since needs replay,
                readers_do_not_consume_from_groups needs replay;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident $(needs $first:ident $(and $second:ident)?)?),+;)+) => {
        $($(
            conformance_case! {
                $($first $(and $second)?)?, $case,
                $crate::conformance::broker::run::<$fixture, _>($crate::conformance::broker::$group::$case)
            }
        )+)+
    };
}
