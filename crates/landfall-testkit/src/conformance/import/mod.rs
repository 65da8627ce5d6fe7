//! The conformance suite of [`ImportSource`](landfall_core::ImportSource): rows of somebody's own outbox, moved.
//!
//! An adapter writes one [`ImportFixture`] and one line:
//!
//! ```text
//! landfall_testkit::import_conformance!(SqliteFixture);
//! ```
//!
//! Every case works on a database of its own. What differs between databases is a value: the [`Dialect`].

mod fixture;
mod stage;

pub mod columns;
pub mod faults;
pub mod mapping;
pub mod order;

pub use fixture::{Dialect, ImportFixture};
pub use stage::Stage;

use super::database::CASE_LIMIT;

/// Runs one case on a database of its own. What the macro's tests call.
pub async fn run<F: ImportFixture, C: AsyncFnOnce(Stage<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let stage = Stage::set(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(stage)).await.expect("the case took longer than its limit");
}

/// One test per case of the import suite, for the [`ImportFixture`](crate::conformance::import::ImportFixture) that is
/// named.
#[macro_export]
macro_rules! import_conformance {
    ($fixture:ty) => {
        $crate::import_conformance! { @groups $fixture;
            columns:
                debeziums_columns_need_no_word,
                every_type_of_payload_arrives_as_its_bytes,
                every_type_of_id_becomes_a_stable_one,
                other_columns_and_templates_are_a_matter_of_the_mapping,
                rows_that_must_stay_are_marked,
                rows_that_cannot_be_messages_are_there_to_be_parked;
            mapping:
                a_table_that_is_missing_is_named,
                a_column_that_is_missing_is_named_with_those_that_exist,
                a_type_that_cannot_be_is_refused,
                a_view_is_refused;
            order:
                the_column_says_what_came_first,
                a_column_that_counts_up_is_found,
                what_the_database_knows_itself_is_used_or_said_to_be_a_guess,
                a_transaction_that_commits_late_is_moved_late,
                keys_keep_their_order_under_concurrent_writers;
            faults:
                a_rolled_back_row_is_never_moved,
                a_stale_epoch_moves_nothing,
                two_movers_move_every_row_once,
                a_mover_that_is_cut_off_anywhere_loses_and_doubles_nothing,
                a_mover_whose_connections_are_killed_loses_and_doubles_nothing,
                a_failing_enqueue_leaves_the_rows_where_they_are;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[::tokio::test(flavor = "multi_thread")]
            async fn $case() {
                $crate::conformance::import::run::<$fixture, _>($crate::conformance::import::$group::$case).await;
            }
        )+)+
    };
}
