//! The conformance suite of a database: outbox, leases, inbox, dead letters and schema.
//!
//! An adapter writes one [`DatabaseFixture`] and one line:
//!
//! ```text
//! landfall_testkit::database_conformance!(SqliteFixture);
//! ```
//!
//! which expands to one `#[tokio::test]` per case; the adapter's crate needs tokio with `macros` and
//! `rt-multi-thread`. Every case works on a database of its own and must end within [`CASE_LIMIT`]. Cases that need a
//! capability which [`DatabaseFixture::capabilities`] does not declare end at once.

mod fixture;
mod stage;

pub mod dead_letters;
pub mod housekeeping;
pub mod inbox;
pub mod inbox_batch;
pub mod inbox_delay;
pub mod inbox_park;
pub mod inbox_redrive;
pub mod inbox_redrive_races;
pub mod leases;
pub mod outbox_compete;
pub mod outbox_control;
pub mod outbox_fencing;
pub mod outbox_late_commit;
pub mod outbox_order;
pub mod outbox_park;
pub mod outbox_retry;
pub mod outbox_skip;
pub mod outbox_takeover;
pub mod outbox_view;
pub mod outbox_wake;
pub mod outbox_write;
pub mod schema;
pub mod sequences;

use std::time::Duration;

pub use fixture::{AuditRow, Connection, DatabaseFixture, Effect, WholeDatabase};
pub use stage::Stage;

/// What a case may take; one that hangs has failed.
pub const CASE_LIMIT: Duration = Duration::from_secs(120);

/// Runs one case on a database of its own. What the macro's tests call.
pub async fn run<F: DatabaseFixture, C: AsyncFnOnce(Stage<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let stage = Stage::set(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(stage)).await.expect("the case took longer than its limit");
}

/// One test per case of the database suite, for the [`DatabaseFixture`](crate::conformance::database::DatabaseFixture)
/// that is named.
#[macro_export]
macro_rules! database_conformance {
    ($fixture:ty) => {
        $crate::database_conformance! { @groups $fixture;
            outbox_write:
                a_rolled_back_transaction_publishes_nothing,
                a_committed_transaction_is_found_with_its_effect,
                everything_about_a_message_survives_the_outbox,
                a_payload_beyond_the_limit_is_refused_and_nothing_is_written,
                append_is_all_or_none,
                an_empty_batch_changes_nothing,
                one_id_enqueued_twice_is_there_twice;
            outbox_order:
                reading_changes_nothing,
                the_order_of_a_key_is_kept_across_batches,
                settled_rows_are_gone_and_counted,
                every_row_is_in_exactly_one_shard_and_a_key_in_one,
                without_a_lease_there_is_nothing_to_read,
                a_transaction_that_commits_late_is_not_lost,
                the_list_pages_through_everything_once;
            outbox_retry:
                a_failing_message_holds_back_its_key_and_only_that_key,
                a_failing_message_without_a_key_holds_nobody,
                a_failed_message_is_due_again_before_its_successors,
                attempts_and_the_last_error_are_visible,
                a_long_error_is_taken;
            outbox_park:
                parking_makes_a_dead_letter_and_holds_the_key,
                parking_a_message_without_a_key_holds_nobody,
                a_redriven_message_goes_out_before_its_successors,
                a_second_redrive_changes_nothing,
                a_redriven_message_can_be_parked_again,
                two_rows_of_one_id_are_parked_and_redriven_apart,
                a_key_with_two_parked_rows_is_held_until_both_are_redriven,
                an_unreadable_row_comes_as_an_error_and_can_be_parked;
            outbox_skip:
                a_skipped_message_is_a_dead_letter_and_its_key_goes_on,
                a_message_that_is_skipped_after_retries_frees_its_key,
                a_skipped_message_goes_out_when_it_is_redriven,
                a_skipped_message_holds_no_key_that_another_lets_go,
                redriving_a_skipped_message_frees_no_key_of_another;
            outbox_fencing:
                a_stale_epoch_changes_nothing,
                an_earlier_epoch_of_the_same_holder_changes_nothing,
                a_lease_that_expired_and_was_not_taken_still_settles,
                a_row_without_its_lease_is_left_alone,
                settling_twice_at_once_settles_once,
                one_call_carries_out_every_kind_of_decision;
            outbox_late_commit:
                a_row_that_commits_after_its_successor_is_published_after_it,
                concurrent_writers_lose_nothing_and_reorder_nothing;
            outbox_takeover:
                a_settlement_waits_for_a_takeover_in_flight_and_then_changes_nothing,
                a_settlement_goes_on_when_the_takeover_is_rolled_back,
                renewing_and_settling_at_once_do_not_block_each_other_for_good;
            outbox_compete:
                two_claims_never_share_a_row,
                what_a_claim_did_not_settle_is_free_again,
                a_claimed_row_that_fails_waits_alone,
                what_competing_relays_left_is_read_in_order_by_the_others,
                a_late_commit_is_claimed_late,
                without_the_capability_claiming_is_refused;
            outbox_wake:
                a_wake_before_the_wait_is_not_lost,
                a_wake_ends_the_wait,
                append_ends_the_wait,
                a_commit_elsewhere_ends_the_wait,
                a_wait_ends_after_its_time_and_not_much_sooner;
            outbox_view:
                every_message_of_the_outbox_is_in_one_state,
                a_message_keeps_its_row_from_state_to_state,
                every_filter_of_the_outbox_finds_what_matches,
                parked_messages_are_listed_page_by_page,
                a_message_is_shown_with_everything_in_it,
                every_row_of_an_id_is_shown,
                an_unreadable_row_is_shown_as_it_was_stored,
                a_sent_message_is_kept_where_that_is_asked_for;
            outbox_control:
                a_retry_by_hand_makes_it_due_at_once,
                a_retry_by_hand_leaves_alone_what_does_not_wait,
                parking_by_hand_makes_a_dead_letter_and_holds_the_key,
                only_what_has_failed_is_parked_by_hand,
                a_relay_settles_nothing_that_was_parked_by_hand,
                what_people_do_to_the_outbox_is_in_the_audit_trail;
            leases:
                a_lease_is_exclusive,
                of_many_who_ask_at_once_one_gets_it,
                a_lease_never_lasts_longer_here_than_in_the_database,
                taking_what_one_holds_keeps_the_epoch,
                an_expired_lease_changes_hands_with_the_next_epoch,
                renewing_keeps_the_epoch_and_extends_the_time,
                a_lease_that_was_taken_over_is_not_renewed,
                a_lease_that_expired_and_was_not_taken_is_renewed,
                a_released_lease_is_free_at_once_under_a_new_epoch,
                releasing_is_idempotent_and_harmless_by_a_stale_holder,
                those_who_let_a_lease_expire_are_named_until_somebody_has_taken_it,
                held_names_what_is_held_now_in_order;
            inbox:
                a_message_is_fresh_once_and_then_a_duplicate,
                a_rolled_back_handler_leaves_nothing,
                a_concurrent_copy_waits_for_the_commit_and_is_a_duplicate,
                a_concurrent_copy_waits_for_the_rollback_and_is_fresh,
                a_message_that_is_not_deduplicated_leaves_no_row,
                groups_do_not_see_each_other;
            inbox_batch:
                a_batch_is_answered_as_one_by_one,
                a_batch_of_nothing_and_one_of_many,
                a_rolled_back_batch_leaves_nothing,
                what_is_held_of_a_batch_queues_in_its_order,
                a_batch_that_waited_for_a_copy_finds_the_key_held;
            inbox_park:
                a_parked_message_holds_its_key_and_successors_queue_behind_it,
                a_parked_message_without_a_key_holds_nobody,
                a_duplicate_of_what_is_parked_or_waiting_is_a_duplicate,
                a_held_message_that_is_not_deduplicated_waits_once,
                a_rolled_back_park_holds_nobody,
                a_dead_letter_keeps_everything_about_its_message,
                a_message_parked_aside_holds_nobody_and_is_redriven_alone;
            inbox_delay:
                what_is_delayed_is_handled_when_its_time_has_come_and_not_before,
                a_delayed_message_holds_its_key_and_its_successors_follow_it,
                a_message_delayed_aside_holds_nobody,
                a_duplicate_of_what_is_delayed_is_a_duplicate,
                a_delayed_message_may_be_delayed_again_and_in_the_end_parked,
                a_rolled_back_delay_leaves_nothing,
                a_successor_may_be_delayed_in_its_turn,
                a_person_cannot_redrive_what_is_delayed,
                what_is_delayed_and_due_is_handled_once_by_two;
            sequences:
                a_number_is_reached_with_the_commit_and_only_then,
                numbers_may_go_to_both_ends,
                whoever_asks_for_the_same_entity_waits_also_the_first_time,
                what_was_reached_long_ago_is_forgotten_unless_a_letter_is_open;
            inbox_redrive:
                what_is_parked_is_not_handled_by_itself,
                a_redrive_drains_the_key_in_order_and_lets_traffic_through,
                live_traffic_queues_behind_a_drain,
                failing_again_parks_again_with_successors_behind,
                a_rolled_back_drain_is_done_again,
                a_resting_message_holds_its_key_and_no_other,
                a_successor_that_fails_holds_those_behind_it,
                a_successor_that_is_parked_aside_lets_those_behind_it_pass,
                what_is_done_cannot_be_parked_again,
                what_is_done_cannot_be_completed_again,
                messages_without_a_key_are_redriven_apart,
                a_redrive_stays_in_its_group;
            inbox_redrive_races:
                two_instances_drain_every_message_once_and_in_order,
                a_successor_waits_for_a_handler_elsewhere,
                live_traffic_that_meets_the_end_of_a_drain_is_not_stuck,
                a_message_held_during_the_last_step_of_a_drain_is_drained,
                a_redrive_that_races_live_traffic_on_one_key_keeps_its_order;
            dead_letters:
                every_filter_finds_what_matches,
                pages_follow_each_other,
                the_figures_add_up_at_every_step,
                every_change_is_in_the_audit_trail,
                a_redrive_moves_only_what_is_parked,
                two_redrives_at_once_move_everything_once,
                the_age_that_few_parked_letters_have_is_told;
            housekeeping:
                sent_messages_go_after_their_time,
                sent_messages_can_be_had_elsewhere_before_they_go,
                a_handled_id_is_forgotten_after_its_time,
                the_id_of_a_dead_letter_is_not_forgotten,
                done_letters_go_after_their_time_and_open_ones_stay,
                a_done_letter_of_the_relay_goes_and_its_message_stays;
            schema:
                without_tables_the_check_says_what_to_do,
                migrating_twice_changes_nothing,
                several_migrations_at_once_are_safe;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::conformance::database::run::<$fixture, _>($crate::conformance::database::$group::$case).await;
            }
        )+)+
    };
}
