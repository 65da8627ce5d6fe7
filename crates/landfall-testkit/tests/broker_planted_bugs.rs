//! The broker suite has teeth: brokers with one bug each, and the cases that must catch it.
//!
//! The clock is tokio's paused one, so that a case which waits in vain for a lost message fails at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod planted_broker;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_testkit::conformance::broker::{Stage, deliver, durable, publish, read, redeliver, run};
use planted_broker::{Bug, Planted};

/// Whether `case` fails on a broker with the bug.
async fn fails<const BUG: usize>(case: impl AsyncFnOnce(Stage<Planted<BUG>>)) -> bool {
    AssertUnwindSafe(run::<Planted<BUG>, _>(case)).catch_unwind().await.is_err()
}

/// Each line is a test: a bug, and the cases that must fail on it, and that must pass without it.
macro_rules! caught {
    ($($test:ident: $bug:ident by $($group:ident::$case:ident),+;)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {$(
            assert!(!fails::<{ Bug::Nothing as usize }>($group::$case).await, "{} fails without the bug", stringify!($case));
            assert!(fails::<{ Bug::$bug as usize }>($group::$case).await, "{} misses the bug", stringify!($case));
        )+}
    )+};
}

caught! {
    a_reordered_key_is_caught: ReordersAKey by
        deliver::what_was_published_is_delivered_in_order_per_key,
        publish::the_order_of_a_key_survives_many_publishers;
    a_dropped_message_is_caught: DropsOne by
        deliver::what_was_published_is_delivered_in_order_per_key,
        deliver::a_new_group_starts_at_the_beginning,
        publish::every_message_has_one_outcome_in_order;
    a_missing_outcome_is_caught: OmitsAnOutcome by
        publish::every_message_has_one_outcome_in_order;
    a_changed_payload_is_caught: CutsPayloads by
        publish::everything_about_a_message_survives_the_broker,
        read::a_reader_from_the_beginning_sees_everything_in_order;
    acknowledging_past_the_unfinished_is_caught: AcknowledgesWhatCameBefore by
        redeliver::an_acknowledgement_out_of_order_loses_nothing,
        durable::an_acknowledgement_out_of_order_loses_nothing_in_a_restart;
    a_forgotten_acknowledgement_is_caught: ForgetsAcknowledgements by
        redeliver::what_was_acknowledged_is_not_delivered_to_the_next_member,
        durable::what_was_acknowledged_is_not_delivered_after_a_restart;
    a_forgotten_delivery_is_caught: FinishesOnDelivery by
        redeliver::a_dropped_delivery_comes_again,
        redeliver::what_a_closed_subscriber_left_comes_to_the_next_member,
        redeliver::what_a_dropped_subscriber_left_comes_to_the_next_member,
        durable::what_was_not_acknowledged_is_delivered_after_a_restart;
    a_delay_that_is_not_kept_is_caught: IgnoresDelays by
        redeliver::what_was_given_back_comes_again_after_its_delay;
    holding_up_other_keys_is_caught: WaitsForWhatWasGivenBack by
        redeliver::giving_one_back_does_not_hold_up_other_keys;
    a_group_that_starts_at_the_end_is_caught: StartsGroupsAtTheEnd by
        deliver::a_new_group_starts_at_the_beginning,
        deliver::groups_are_independent;
    groups_that_share_are_caught: SharesGroups by
        deliver::groups_are_independent;
    losing_on_cancellation_is_caught: LosesOnCancellation by
        deliver::dropping_the_future_of_next_loses_nothing;
    a_wrong_position_is_caught: MisstatesPositions by
        deliver::a_delivery_knows_its_position;
    a_reader_at_the_wrong_place_is_caught: ReadsFromTheBeginning by
        read::a_reader_from_an_offset_sees_the_rest,
        read::a_reader_from_a_time_sees_what_was_taken_since,
        read::a_reader_from_the_end_sees_only_what_comes;
    a_copy_that_is_stored_is_caught: StoresCopies by
        publish::a_copy_is_accepted_and_not_stored_again;
    swallowing_what_was_moved_aside_is_caught: SwallowsWhatWasMovedAside by
        publish::each_send_of_a_message_that_was_moved_aside_is_stored;
    taking_what_is_too_large_is_caught: TakesWhatIsTooLarge by
        publish::what_is_too_large_is_refused_and_holds_back_only_its_key;
    overtaking_what_was_refused_is_caught: OvertakesWhatWasRefused by
        publish::what_is_too_large_is_refused_and_holds_back_only_its_key;
    forgetting_everything_in_a_restart_is_caught: ForgetsEverything by
        durable::what_was_accepted_is_there_after_a_restart,
        durable::offsets_go_on_after_a_restart;
}
