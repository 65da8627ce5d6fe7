//! The conformance suite of a database: outbox, leases, inbox, dead letters, half messages, barrier and schema.
//!
//! An adapter implements a [`DatabaseFixture`] and calls:
//!
//! ```text
//! landfall_testkit::database_conformance!(SqliteFixture);
//! ```
//!
//! The macro expands to one `#[tokio::test]` per case. The adapter's crate needs tokio with `macros` and
//! `rt-multi-thread`. Every case runs on a new database and must end within [`CASE_LIMIT`].
//! A database that lacks a capability declares it, with the reason; the cases that need it are then ignored:
//!
//! ```text
//! landfall_testkit::database_conformance!(FileFixture, without competing_relays: "no `competing_relays`: one writer");
//! ```

mod fixture;
mod half_steps;
mod harness;

pub mod alerts;
pub mod barrier;
pub mod dead_letter_groups;
pub mod dead_letters;
pub mod deliveries;
pub mod discard;
pub mod half_check;
pub mod half_decide;
pub mod half_prepare;
pub mod half_retention;
pub mod housekeeping;
pub mod idempotency_record;
pub mod inbox;
pub mod inbox_batch;
pub mod inbox_delay;
pub mod inbox_park;
pub mod inbox_redrive;
pub mod inbox_redrive_races;
pub mod key_rules;
pub mod leases;
pub mod letter_archive;
pub mod letter_groups;
pub mod outbox_append_once;
pub mod outbox_compete;
pub mod outbox_control;
pub mod outbox_fencing;
pub mod outbox_late_commit;
pub mod outbox_order;
pub mod outbox_park;
pub mod outbox_payload_text;
pub mod outbox_retry;
pub mod outbox_skip;
pub mod outbox_takeover;
pub mod outbox_view;
pub mod outbox_wake;
pub mod outbox_write;
pub mod redrive_jobs;
pub mod rehearsals;
pub mod schema;
pub mod schema_upgrade;
pub mod sequences;

use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;

use super::capabilities::assert_declared;

pub use fixture::{AuditRow, Connection, DatabaseFixture, Effect, FullDatabase};
pub use harness::Harness;

/// The time limit of a case; a case that hangs fails.
pub const CASE_LIMIT: Duration = Duration::from_secs(120);

/// Runs one case on a new database. The tests that the macro generates call this.
pub async fn run<F: DatabaseFixture, C: AsyncFnOnce(Harness<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let harness = Harness::new(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(harness)).await.expect("the case exceeded its time limit");
}

/// Asserts that the database lacks exactly the `declared` capabilities. A test that the macro generates calls this.
pub async fn check_declaration<F: DatabaseFixture>(declared: &[&str]) {
    let DatabaseCapabilities { concurrent_writers, wakes_across_processes, competing_relays } = F::capabilities();
    let present = [
        ("concurrent_writers", concurrent_writers),
        ("wakes_across_processes", wakes_across_processes),
        ("competing_relays", competing_relays),
    ];
    assert_declared(declared, &present);
}

/// Generates one test per case of the database suite for a
/// [`DatabaseFixture`](crate::conformance::database::DatabaseFixture).
#[macro_export]
macro_rules! database_conformance {
    ($fixture:ty $(, without $($lacking:ident: $reason:literal),+)?) => {
        $crate::conformance_case! { $($($lacking: $reason),+)? }

        #[::tokio::test(flavor = "multi_thread")]
        async fn declared_capabilities_are_those_of_the_adapter() {
            $crate::conformance::database::check_declaration::<$fixture>(&[$($(stringify!($lacking)),+)?]).await;
        }

        $crate::database_conformance! { @groups $fixture;
            outbox_write:
                rolled_back_transaction_publishes_nothing,
                committed_transaction_stores_message_and_effect,
                all_message_fields_survive_the_outbox,
                oversized_payload_is_refused_and_nothing_is_written,
                append_is_all_or_nothing,
                empty_batch_changes_nothing,
                outbox_does_not_deduplicate_ids;
            outbox_append_once:
                retry_is_enqueued_once_even_after_it_was_sent,
                another_message_under_the_same_id_is_refused,
                concurrent_retries_enqueue_one_message,
                refused_append_does_not_remember_the_id,
                batch_is_enqueued_once_per_id_in_its_order,
                concurrent_batches_in_any_order_do_not_deadlock,
                refused_message_of_a_batch_leaves_nothing,
                enqueued_ids_are_removed_after_retention;
            outbox_order:
                reading_the_outbox_changes_nothing,
                key_order_is_kept_across_batches,
                published_rows_are_removed_and_counted,
                each_row_and_each_key_is_in_exactly_one_shard,
                nothing_is_read_without_a_lease,
                late_commit_is_not_skipped needs concurrent_writers,
                outbox_pages_return_each_row_once;
            outbox_retry:
                retrying_message_blocks_only_its_key,
                retrying_keyless_message_blocks_nothing,
                retried_message_is_due_before_its_successors,
                attempts_and_the_last_error_are_visible,
                long_error_text_is_accepted;
            outbox_park:
                parking_creates_a_dead_letter_and_holds_the_key,
                parking_a_keyless_message_blocks_nothing,
                redriven_message_is_published_before_its_successors,
                second_redrive_changes_nothing,
                redriven_message_can_be_parked_again,
                rows_with_the_same_id_are_parked_independently,
                key_is_held_until_all_its_parked_rows_are_redriven,
                unreadable_row_is_an_error_and_can_be_parked;
            outbox_payload_text:
                text_payload_arrives_byte_for_byte,
                text_payload_is_parked_and_redriven_unchanged,
                sent_text_payload_is_kept_as_bytes,
                row_without_exactly_one_payload_is_refused_or_parked;
            outbox_skip:
                skipped_message_is_parked_without_holding_its_key,
                skipping_after_retries_frees_the_key,
                skipped_message_is_published_when_redriven,
                skipped_message_does_not_keep_a_key_held,
                redriving_a_skipped_message_does_not_free_a_held_key;
            outbox_fencing:
                stale_epoch_settles_nothing,
                earlier_epoch_of_the_same_holder_settles_nothing,
                expired_but_unclaimed_lease_still_settles,
                row_is_not_settled_without_its_shard_lease,
                concurrent_settles_settle_each_row_once,
                one_settle_call_mixes_all_decisions;
            outbox_late_commit:
                lower_id_that_commits_later_is_still_published needs concurrent_writers,
                concurrent_writers_lose_and_reorder_nothing needs concurrent_writers;
            outbox_takeover:
                settle_waits_for_an_open_takeover_and_changes_nothing,
                settle_succeeds_when_the_takeover_rolls_back,
                concurrent_renew_and_settle_do_not_deadlock;
            outbox_compete:
                concurrent_claims_never_share_a_row needs competing_relays,
                unsettled_rows_of_a_claim_are_released needs competing_relays,
                failed_claimed_row_blocks_no_other_row needs competing_relays,
                ordered_relay_reads_rows_left_by_competing_relays needs competing_relays,
                late_commit_can_be_claimed needs competing_relays,
                claim_is_refused_without_the_capability;
            outbox_wake:
                wake_before_wait_is_not_lost,
                wake_ends_the_wait,
                append_ends_the_wait,
                commit_in_another_process_ends_the_wait needs wakes_across_processes,
                wait_ends_after_its_timeout;
            outbox_view:
                each_outbox_message_is_in_exactly_one_state,
                row_id_is_stable_across_states,
                outbox_filters_return_matching_rows,
                parked_messages_are_paged,
                show_returns_all_message_fields,
                show_returns_every_row_with_the_id,
                unreadable_row_is_shown_as_stored,
                sent_messages_are_kept_if_configured;
            outbox_control:
                manual_retry_makes_the_message_due,
                manual_retry_affects_only_waiting_messages,
                manual_park_creates_a_dead_letter_and_holds_the_key,
                manual_park_accepts_only_failed_messages,
                relay_cannot_settle_a_manually_parked_message,
                manual_outbox_actions_are_audited;
            leases:
                lease_is_exclusive,
                concurrent_acquires_have_one_winner,
                local_expiry_never_exceeds_database_expiry,
                reacquiring_a_held_lease_keeps_the_epoch,
                expired_lease_is_acquired_under_the_next_epoch,
                lease_written_under_a_wrong_clock_is_taken_over,
                live_holder_of_a_misdated_lease_keeps_it_by_renewing,
                renew_keeps_the_epoch_and_extends_the_lease,
                lost_lease_is_not_renewed,
                expired_but_unclaimed_lease_is_renewed,
                released_lease_is_free_under_a_new_epoch,
                release_is_idempotent_and_ignores_stale_leases,
                lapsed_returns_holders_of_expired_unclaimed_leases,
                held_returns_live_leases_in_order;
            inbox:
                message_is_fresh_once_then_a_duplicate,
                rolled_back_handler_leaves_nothing,
                concurrent_duplicate_waits_for_the_commit needs concurrent_writers,
                concurrent_duplicate_is_fresh_after_a_rollback needs concurrent_writers,
                modes_without_dedup_leave_no_inbox_row,
                inbox_groups_are_independent;
            inbox_batch:
                batch_admission_equals_single_admission,
                empty_and_large_batches_are_admitted,
                rolled_back_batch_leaves_nothing,
                held_messages_of_a_batch_queue_in_order,
                batch_that_waited_for_a_duplicate_sees_the_held_key needs concurrent_writers;
            inbox_park:
                parked_message_holds_its_key_and_queues_successors,
                keyless_dead_letter_blocks_nothing,
                parked_and_waiting_messages_are_deduplicated,
                held_message_without_dedup_waits_once,
                rolled_back_park_holds_no_key,
                dead_letter_keeps_all_message_fields,
                message_parked_without_hold_is_redriven_alone;
            inbox_delay:
                delayed_message_is_handled_when_due_and_not_before,
                delayed_message_holds_its_key_and_successors_follow,
                message_delayed_without_hold_blocks_nothing,
                delayed_message_is_deduplicated,
                delayed_message_can_be_delayed_again_then_parked,
                rolled_back_delay_leaves_nothing,
                successor_of_a_delayed_message_can_be_delayed,
                manual_redrive_skips_delayed_messages,
                two_consumers_handle_due_messages_once;
            sequences:
                sequence_is_recorded_only_on_commit,
                sequences_cover_the_i64_range,
                concurrent_reads_of_a_new_entity_are_serialized needs concurrent_writers,
                old_sequences_are_removed_unless_a_dead_letter_is_open;
            inbox_redrive:
                parked_messages_are_not_handled_without_a_redrive,
                redrive_drains_the_key_in_order_and_frees_it,
                live_traffic_queues_behind_a_drain,
                failed_redrive_parks_again_and_holds_successors,
                rolled_back_drain_is_repeated,
                resting_message_holds_only_its_key,
                failing_successor_holds_the_rest_of_its_key,
                successor_parked_without_hold_frees_the_rest,
                done_dead_letter_cannot_be_parked_again,
                done_dead_letter_cannot_be_completed_again,
                keyless_messages_are_redriven_independently,
                redrive_stays_in_its_group;
            inbox_redrive_races:
                two_consumers_drain_each_message_once_in_order,
                successor_waits_for_a_handler_in_another_process needs concurrent_writers,
                live_message_at_the_end_of_a_drain_takes_effect needs concurrent_writers,
                message_held_during_the_last_drain_step_is_drained needs concurrent_writers,
                redrive_racing_live_traffic_keeps_key_order;
            dead_letters:
                dead_letter_filters_return_matching_letters,
                dead_letter_pages_return_each_letter_once,
                lists_of_letters_leave_out_payloads,
                most_frequent_error_codes_are_counted,
                dead_letter_counts_are_consistent_at_every_step,
                every_dead_letter_change_is_audited,
                redrive_affects_only_parked_letters,
                concurrent_redrives_move_each_letter_once,
                parked_age_p95_is_reported;
            dead_letter_groups:
                letters_are_found_by_error_trace_and_text,
                letters_are_grouped_by_fingerprint,
                counts_of_letters_are_bounded,
                ignored_letter_waits_until_it_is_released,
                letters_are_found_by_a_value_in_the_payload;
            key_rules:
                blocked_key_is_skipped_until_its_rule_ends,
                allowed_key_is_exempt_from_the_automatic_block;
            letter_groups:
                group_has_a_state_and_a_note,
                resolved_group_regresses_with_a_new_letter,
                muted_group_opens_when_its_time_is_over;
            redrive_jobs:
                job_redrives_exactly_its_frozen_selection,
                letter_succeeds_when_handled_not_when_handed_back,
                relay_letter_succeeds_when_published,
                repeated_redrive_request_is_one_job,
                redrive_of_another_number_of_letters_is_refused,
                redrive_without_a_condition_is_refused,
                second_job_skips_the_letters_of_the_first,
                outdated_runner_changes_no_job,
                paused_and_stopped_jobs_hand_back_nothing,
                letters_of_a_key_are_handed_back_in_turn,
                letter_behind_an_unselected_one_is_skipped,
                job_stops_by_itself_on_failures,
                new_error_stops_the_job,
                guards_skip_letters_with_their_reason,
                immediate_redrive_skips_what_a_job_would,
                immediate_redrive_is_limited_and_keeps_keys_in_order,
                audit_names_the_job_and_the_reason,
                letters_of_a_job_have_their_outcomes,
                old_redrive_jobs_are_removed_in_steps,
                redrive_jobs_are_listed_and_audited,
                rehearsal_predicts_what_the_job_does;
            rehearsals:
                only_parked_letters_are_rehearsed,
                expired_claim_is_taken_over_and_fenced;
            alerts:
                alert_and_its_notices_are_stored_together,
                outdated_change_stores_nothing,
                notices_are_delivered_under_a_stable_id,
                end_of_an_alert_waits_for_its_beginning,
                channel_rests_between_attempts_and_when_told,
                concurrent_claims_deliver_each_notice_once,
                mutes_are_stored_and_audited,
                old_alerts_and_settled_notices_are_removed,
                letters_are_observed_by_topic_key_and_error;
            discard:
                discarded_message_frees_its_key_in_order,
                discarding_the_only_letter_frees_the_key,
                discarded_relay_message_lets_its_successors_pass,
                only_parked_letters_are_discarded,
                edited_payload_is_redriven_and_the_original_kept,
                only_parked_letters_are_edited,
                open_letters_are_counted_by_topic_and_group;
            deliveries:
                failed_delivery_is_listed_until_it_is_cleared,
                delivery_filters_return_matching_deliveries,
                handled_delivery_is_hidden_and_removed,
                overdue_delivery_records_are_removed,
                admitted_message_names_its_groups;
            housekeeping:
                sent_messages_are_removed_after_retention,
                sent_messages_can_be_archived_before_removal,
                guard_row_outlives_the_inbox, inbox_ids_are_removed_after_retention,
                inbox_id_of_an_open_dead_letter_is_kept,
                done_dead_letters_are_removed_after_retention,
                removing_a_relay_dead_letter_keeps_its_message;
            letter_archive:
                final_letters_are_archived_with_their_history,
                open_letter_is_never_archived,
                restored_letters_are_the_archived_ones,
                repeated_restore_changes_nothing,
                restored_letter_gets_another_id_if_its_own_is_taken,
                restored_letter_is_kept_for_the_full_retention;
            half_prepare:
                prepared_message_is_not_published,
                repeated_prepare_changes_nothing,
                another_half_message_under_the_same_id_is_refused,
                prepare_after_the_verdict_returns_it,
                concurrent_prepares_store_one_message,
                all_message_fields_survive_until_the_commit,
                all_fields_of_an_early_commit_survive,
                half_message_over_the_limits_is_refused;
            half_decide:
                commit_enqueues_the_message_once,
                commit_wakes_the_relay,
                rolled_back_message_is_never_published,
                rollback_after_commit_is_recorded_and_changes_nothing,
                commit_after_rollback_is_recorded_and_changes_nothing,
                commit_before_prepare_enqueues_once_when_prepared,
                rollback_before_prepare_is_never_published,
                concurrent_decisions_have_one_winner,
                concurrent_prepare_and_commit_enqueue_once;
            half_check:
                nothing_is_checked_during_immunity,
                claimed_check_has_the_whole_message,
                check_is_claimed_once_within_its_lease,
                check_can_be_claimed_again_after_its_lease,
                longest_due_check_is_claimed_first,
                undecided_check_is_repeated_after_its_pause,
                stale_check_is_ignored,
                parked_message_waits_for_a_decision,
                decided_message_is_not_checked,
                half_message_filters_return_matching_rows,
                half_message_pages_return_each_row_once,
                half_message_counts_are_consistent;
            half_retention:
                decided_half_messages_are_removed_after_retention,
                undecided_half_messages_are_kept,
                contradicted_half_message_is_kept_until_acknowledged,
                old_half_messages_can_be_archived_before_removal;
            idempotency_record:
                record_and_work_commit_together,
                rolled_back_work_leaves_no_record,
                repeat_in_a_transaction_is_refused_with_the_answer,
                concurrent_transactions_have_one_effect,
                separate_claim_and_transaction_exclude_each_other,
                record_committed_without_an_answer_is_uncertain,
                answer_without_an_open_record_is_refused,
                token_is_consumed_in_the_transaction_of_its_work,
                resolution_is_audited;
            barrier:
                committed_local_transaction_is_committed,
                missing_row_is_rolled_back_and_a_late_transaction_fails,
                rolled_back_local_transaction_is_rolled_back,
                open_local_transaction_is_unknown_until_it_commits,
                open_local_transaction_is_unknown_until_it_rolls_back,
                concurrent_questions_have_the_same_answer,
                question_and_local_transaction_agree,
                barrier_row_can_be_written_with_plain_sql,
                removed_barrier_rows_make_older_messages_unknown;
            schema:
                schema_check_without_tables_names_the_migration,
                migrate_is_idempotent,
                concurrent_migrations_are_safe;
            schema_upgrade:
                version_1_is_upgraded_with_its_rows;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident $(needs $first:ident $(and $second:ident)?)?),+;)+) => {
        $($(
            conformance_case! {
                $($first $(and $second)?)?, $case,
                $crate::conformance::database::run::<$fixture, _>($crate::conformance::database::$group::$case)
            }
        )+)+
    };
}
