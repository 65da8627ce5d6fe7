//! Mutation tests of the broker suite: brokers with one bug each, and the cases that must detect it.
//!
//! They run on tokio's paused clock, so that a case that waits for a lost message times out at once.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_testkit::conformance::broker::{Harness, deliver, durable, publish, read, redeliver, run};

use crate::planted_broker::{Bug, Planted};

/// Whether `case` fails on a broker with the bug.
async fn fails<const BUG: usize>(case: impl AsyncFnOnce(Harness<Planted<BUG>>)) -> bool {
    AssertUnwindSafe(run::<Planted<BUG>, _>(case)).catch_unwind().await.is_err()
}

/// Generates one test per line: a bug, and the cases that must fail with it and pass without it.
macro_rules! detected {
    ($($test:ident: $bug:ident by $($group:ident::$case:ident),+;)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {$(
            let case = stringify!($case);
            assert!(!fails::<{ Bug::Nothing as usize }>($group::$case).await, "{case} fails without the bug");
            assert!(fails::<{ Bug::$bug as usize }>($group::$case).await, "{case} misses the bug");
        )+}
    )+};
}

detected! {
    reordered_key_is_detected: ReordersKey by
        deliver::published_messages_are_delivered_in_key_order,
        publish::key_order_holds_with_many_publishers;
    dropped_message_is_detected: DropsMessage by
        deliver::published_messages_are_delivered_in_key_order,
        deliver::new_group_starts_at_the_beginning,
        publish::publish_returns_one_outcome_per_message_in_order;
    missing_outcome_is_detected: OmitsOutcome by
        publish::publish_returns_one_outcome_per_message_in_order;
    truncated_payload_is_detected: TruncatesPayloads by
        publish::all_message_fields_survive_the_broker,
        read::reader_from_the_beginning_reads_everything_in_order;
    ack_of_unfinished_predecessors_is_detected: AcksPredecessors by
        redeliver::out_of_order_ack_loses_nothing,
        durable::out_of_order_ack_loses_nothing_in_a_restart;
    lost_ack_is_detected: LosesAcks by
        redeliver::acked_message_is_not_redelivered_to_the_next_member,
        durable::acked_messages_are_not_redelivered_after_a_restart;
    ack_on_delivery_is_detected: AcksOnDelivery by
        redeliver::dropped_delivery_is_redelivered,
        redeliver::unacked_messages_of_a_closed_subscriber_are_redelivered,
        redeliver::unacked_messages_of_a_dropped_subscriber_are_redelivered,
        durable::unacked_messages_are_redelivered_after_a_restart;
    ignored_delay_is_detected: IgnoresDelays by
        redeliver::nacked_message_is_redelivered_after_its_delay;
    head_of_line_blocking_is_detected: BlocksAfterNack by
        redeliver::nack_delay_does_not_block_other_keys;
    group_starting_at_the_end_is_detected: StartsGroupsAtEnd by
        deliver::new_group_starts_at_the_beginning,
        deliver::groups_are_independent;
    shared_groups_are_detected: SharesGroups by
        deliver::groups_are_independent;
    loss_on_cancellation_is_detected: LosesOnCancellation by
        deliver::next_is_cancellation_safe;
    wrong_position_is_detected: ReportsWrongPositions by
        deliver::delivery_carries_its_position;
    reader_at_the_wrong_offset_is_detected: IgnoresStartPosition by
        read::reader_from_an_offset_reads_the_rest,
        read::reader_from_a_time_reads_messages_stored_since,
        read::reader_from_the_end_reads_only_new_messages;
    stored_duplicate_is_detected: StoresDuplicates by
        publish::duplicate_is_accepted_and_stored_once;
    deduplicated_retry_is_detected: DeduplicatesRetries by
        publish::retry_of_a_failed_message_is_not_deduplicated;
    accepted_oversized_message_is_detected: AcceptsOversized by
        publish::oversized_message_is_refused_and_blocks_only_its_key;
    overtaking_a_refused_message_is_detected: OvertakesRefused by
        publish::oversized_message_is_refused_and_blocks_only_its_key;
    data_lost_on_restart_is_detected: LosesDataOnRestart by
        durable::accepted_messages_survive_a_restart,
        durable::offsets_continue_after_a_restart;
}
