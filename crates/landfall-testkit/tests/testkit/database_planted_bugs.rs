//! Mutation tests of the database suite: databases with one bug each, and the cases that must detect it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_testkit::conformance::database::{
    Harness, dead_letters, housekeeping, inbox, inbox_batch, inbox_delay, inbox_park, inbox_redrive, leases,
    outbox_control, outbox_fencing, outbox_order, outbox_park, outbox_retry, outbox_skip, outbox_view, outbox_write,
    run, sequences,
};

use crate::planted_database::{BUGS, Planted};

/// Whether `case` fails on a database with the bug.
async fn fails<const BUG: usize>(case: impl AsyncFnOnce(Harness<Planted<BUG>>)) -> bool {
    AssertUnwindSafe(run::<Planted<BUG>, _>(case)).catch_unwind().await.is_err()
}

/// Returns the number of a bug at compile time.
const fn bug(name: &str) -> usize {
    let mut number = 0;
    while number < BUGS.len() {
        if same(BUGS[number].0.as_bytes(), name.as_bytes()) {
            return number;
        }
        number += 1;
    }
    panic!("unknown bug name")
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    one.len() == other.len() && index == one.len()
}

/// Generates one test per line: a bug, and the cases that must fail with it and pass without it.
macro_rules! detected {
    ($($test:ident: $bug:literal by $($group:ident::$case:ident),+;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {$(
            let case = stringify!($case);
            assert!(!fails::<{ bug("nothing") }>($group::$case).await, "{case} fails without the bug");
            assert!(fails::<{ bug($bug) }>($group::$case).await, "{case} misses the bug");
        )+}
    )+};
}

detected! {
    inbox_without_dedup_is_detected: "inbox does not deduplicate" by
        inbox::message_is_fresh_once_then_a_duplicate,
        inbox_batch::batch_admission_equals_single_admission,
        inbox_park::parked_and_waiting_messages_are_deduplicated,
        inbox_delay::delayed_message_is_deduplicated;
    ignored_delay_is_detected: "delayed message is due at once" by
        inbox_delay::delayed_message_is_handled_when_due_and_not_before,
        inbox_delay::message_delayed_without_hold_blocks_nothing;
    delay_that_parks_is_detected: "second delay parks the message" by
        inbox_delay::successor_of_a_delayed_message_can_be_delayed,
        inbox_delay::delayed_message_can_be_delayed_again_then_parked;
    early_sequence_removal_is_detected: "sequences expire at once" by
        sequences::old_sequences_are_removed_unless_a_dead_letter_is_open;
    unheld_key_is_detected: "no key is held" by
        inbox_park::parked_message_holds_its_key_and_queues_successors,
        inbox_delay::delayed_message_holds_its_key_and_successors_follow,
        inbox_batch::held_messages_of_a_batch_queue_in_order,
        outbox_park::parking_creates_a_dead_letter_and_holds_the_key;
    key_that_is_never_freed_is_detected: "held key is never freed" by
        inbox_redrive::redrive_drains_the_key_in_order_and_frees_it,
        outbox_park::redriven_message_is_published_before_its_successors;
    dropped_message_is_detected: "one message in three is dropped" by
        outbox_write::append_is_all_or_nothing,
        outbox_order::key_order_is_kept_across_batches;
    truncated_payload_is_detected: "payload is truncated" by
        outbox_write::all_message_fields_survive_the_outbox;
    unremoved_published_row_is_detected: "published row is not removed" by
        outbox_order::published_rows_are_removed_and_counted;
    wrong_published_count_is_detected: "published rows are not counted" by
        outbox_order::published_rows_are_removed_and_counted,
        outbox_fencing::one_settle_call_mixes_all_decisions;
    retry_without_backoff_is_detected: "retry has no backoff" by
        outbox_retry::retrying_message_blocks_only_its_key,
        outbox_retry::retrying_keyless_message_blocks_nothing;
    out_of_order_redrive_is_detected: "redriven message moves to the end" by
        outbox_park::redriven_message_is_published_before_its_successors;
    constant_epoch_is_detected: "epoch does not grow" by
        outbox_fencing::earlier_epoch_of_the_same_holder_settles_nothing;
    unreleased_lease_is_detected: "lease is not released" by
        leases::released_lease_is_free_under_a_new_epoch;
    non_exclusive_lease_is_detected: "lease expires at once" by
        leases::lease_is_exclusive,
        leases::concurrent_acquires_have_one_winner;
    lost_successor_is_detected: "waiting letter is marked done" by
        inbox_redrive::redrive_drains_the_key_in_order_and_frees_it,
        dead_letters::dead_letter_counts_are_consistent_at_every_step;
    endless_redrive_is_detected: "failed redrive is redriven again" by
        inbox_redrive::failed_redrive_parks_again_and_holds_successors;
    missing_audit_is_detected: "nothing is audited" by
        dead_letters::every_dead_letter_change_is_audited,
        outbox_control::manual_outbox_actions_are_audited;
    skipped_message_that_holds_its_key_is_detected: "skipped message holds its key" by
        outbox_skip::skipped_message_is_parked_without_holding_its_key;
    key_kept_by_a_skipped_message_is_detected: "skipped message is marked as holding its key" by
        outbox_skip::skipped_message_does_not_keep_a_key_held;
    manual_retry_without_effect_is_detected: "manual retry changes nothing" by
        outbox_control::manual_retry_affects_only_waiting_messages;
    unaudited_manual_retry_is_detected: "manual retry is not audited" by
        outbox_control::manual_outbox_actions_are_audited;
    lost_park_reason_is_detected: "manual park loses its reason" by
        outbox_control::manual_park_creates_a_dead_letter_and_holds_the_key;
    unkept_sent_message_is_detected: "sent messages are not kept" by
        outbox_view::sent_messages_are_kept_if_configured;
    unheld_dead_letter_key_is_detected: "no key is held" by
        outbox_view::each_outbox_message_is_in_exactly_one_state,
        outbox_control::manual_park_creates_a_dead_letter_and_holds_the_key;
    early_inbox_removal_is_detected: "inbox ids expire at once" by
        housekeeping::inbox_ids_are_removed_after_retention;
    early_dead_letter_removal_is_detected: "done letters expire at once" by
        housekeeping::done_dead_letters_are_removed_after_retention,
        housekeeping::removing_a_relay_dead_letter_keeps_its_message;
    removed_audit_is_detected: "audit is removed with its letter" by
        housekeeping::done_dead_letters_are_removed_after_retention;
}
