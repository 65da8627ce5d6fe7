//! The database suite has teeth: databases with one bug each, and the cases that must catch it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod planted_database;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_testkit::conformance::database::{
    Stage, dead_letters, housekeeping, inbox, inbox_batch, inbox_delay, inbox_park, inbox_redrive, leases,
    outbox_control, outbox_fencing, outbox_order, outbox_park, outbox_retry, outbox_skip, outbox_view, outbox_write,
    run, sequences,
};
use planted_database::{BUGS, Planted};

/// Whether `case` fails on a database with the bug.
async fn fails<const BUG: usize>(case: impl AsyncFnOnce(Stage<Planted<BUG>>)) -> bool {
    AssertUnwindSafe(run::<Planted<BUG>, _>(case)).catch_unwind().await.is_err()
}

/// The number of a bug, known when the test is compiled.
const fn bug(name: &str) -> usize {
    let mut number = 0;
    while number < BUGS.len() {
        if same(BUGS[number].0.as_bytes(), name.as_bytes()) {
            return number;
        }
        number += 1;
    }
    panic!("there is no bug of that name")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    one.len() == other.len() && index == one.len()
}

/// Each line is a test: a bug, and the cases that must fail on it, and that must pass without it.
macro_rules! caught {
    ($($test:ident: $bug:literal by $($group:ident::$case:ident),+;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {$(
            assert!(!fails::<{ bug("nothing") }>($group::$case).await, "{} fails without the bug", stringify!($case));
            assert!(fails::<{ bug($bug) }>($group::$case).await, "{} misses the bug", stringify!($case));
        )+}
    )+};
}

caught! {
    a_forgetful_inbox_is_caught: "the inbox forgets" by
        inbox::a_message_is_fresh_once_and_then_a_duplicate,
        inbox_batch::a_batch_is_answered_as_one_by_one,
        inbox_park::a_duplicate_of_what_is_parked_or_waiting_is_a_duplicate,
        inbox_delay::a_duplicate_of_what_is_delayed_is_a_duplicate;
    a_delay_that_is_not_kept_is_caught: "what is delayed is due at once" by
        inbox_delay::what_is_delayed_is_handled_when_its_time_has_come_and_not_before,
        inbox_delay::a_message_delayed_aside_holds_nobody;
    a_delay_that_ends_with_a_person_is_caught: "what is delayed again is parked" by
        inbox_delay::a_successor_may_be_delayed_in_its_turn,
        inbox_delay::a_delayed_message_may_be_delayed_again_and_in_the_end_parked;
    forgetting_what_was_reached_is_caught: "what was reached is old at once" by
        sequences::what_was_reached_long_ago_is_forgotten_unless_a_letter_is_open;
    a_key_that_is_not_held_is_caught: "no key is held" by
        inbox_park::a_parked_message_holds_its_key_and_successors_queue_behind_it,
        inbox_delay::a_delayed_message_holds_its_key_and_its_successors_follow_it,
        inbox_batch::what_is_held_of_a_batch_queues_in_its_order,
        outbox_park::parking_makes_a_dead_letter_and_holds_the_key;
    a_key_that_is_never_freed_is_caught: "a held key is never freed" by
        inbox_redrive::a_redrive_drains_the_key_in_order_and_lets_traffic_through,
        outbox_park::a_redriven_message_goes_out_before_its_successors;
    a_dropped_message_is_caught: "one message in three is dropped" by
        outbox_write::append_is_all_or_none,
        outbox_order::the_order_of_a_key_is_kept_across_batches;
    a_changed_payload_is_caught: "a payload is cut" by
        outbox_write::everything_about_a_message_survives_the_outbox;
    a_published_row_that_stays_is_caught: "a published row stays" by
        outbox_order::settled_rows_are_gone_and_counted;
    a_wrong_count_is_caught: "what is published is not counted" by
        outbox_order::settled_rows_are_gone_and_counted,
        outbox_fencing::one_call_carries_out_every_kind_of_decision;
    a_retry_that_does_not_wait_is_caught: "a retry does not wait" by
        outbox_retry::a_failing_message_holds_back_its_key_and_only_that_key,
        outbox_retry::a_failing_message_without_a_key_holds_nobody;
    a_redrive_out_of_order_is_caught: "a redriven message goes to the end" by
        outbox_park::a_redriven_message_goes_out_before_its_successors;
    an_epoch_that_does_not_grow_is_caught: "an epoch does not grow" by
        outbox_fencing::an_earlier_epoch_of_the_same_holder_changes_nothing;
    a_lease_that_is_not_given_back_is_caught: "a lease is not given back" by
        leases::a_released_lease_is_free_at_once_under_a_new_epoch;
    a_lease_that_excludes_nobody_is_caught: "a lease expires at once" by
        leases::a_lease_is_exclusive,
        leases::of_many_who_ask_at_once_one_gets_it;
    a_lost_successor_is_caught: "who waits is taken for done" by
        inbox_redrive::a_redrive_drains_the_key_in_order_and_lets_traffic_through,
        dead_letters::the_figures_add_up_at_every_step;
    an_endless_redrive_is_caught: "what fails again is handled again" by
        inbox_redrive::failing_again_parks_again_with_successors_behind;
    a_missing_audit_is_caught: "nothing is audited" by
        dead_letters::every_change_is_in_the_audit_trail,
        outbox_control::what_people_do_to_the_outbox_is_in_the_audit_trail;
    a_skipped_message_that_holds_its_key_is_caught: "a skipped message holds its key" by
        outbox_skip::a_skipped_message_is_a_dead_letter_and_its_key_goes_on;
    a_key_that_a_skipped_message_keeps_is_caught: "a skipped message is taken for one that holds its key" by
        outbox_skip::a_skipped_message_holds_no_key_that_another_lets_go;
    a_retry_without_effect_is_caught: "a retry by hand changes nothing" by
        outbox_control::a_retry_by_hand_leaves_alone_what_does_not_wait;
    a_retry_without_audit_is_caught: "a retry by hand is not audited" by
        outbox_control::what_people_do_to_the_outbox_is_in_the_audit_trail;
    a_lost_reason_is_caught: "what is parked by hand loses its reason" by
        outbox_control::parking_by_hand_makes_a_dead_letter_and_holds_the_key;
    a_sent_message_that_is_lost_is_caught: "sent messages are not kept" by
        outbox_view::a_sent_message_is_kept_where_that_is_asked_for;
    a_dead_letter_that_is_not_held_is_seen: "no key is held" by
        outbox_view::every_message_of_the_outbox_is_in_one_state,
        outbox_control::parking_by_hand_makes_a_dead_letter_and_holds_the_key;
    an_early_forgetting_is_caught: "every id is forgotten at once" by
        housekeeping::a_handled_id_is_forgotten_after_its_time;
    a_letter_removed_early_is_caught: "a letter is done since ever" by
        housekeeping::done_letters_go_after_their_time_and_open_ones_stay,
        housekeeping::a_done_letter_of_the_relay_goes_and_its_message_stays;
    an_audit_that_goes_is_caught: "the audit goes with its letter" by
        housekeeping::done_letters_go_after_their_time_and_open_ones_stay;
}
