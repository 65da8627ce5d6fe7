//! The conformance suite of [`ImportSource`](landfall_core::ImportSource): import from an existing outbox table.
//!
//! An adapter implements an [`ImportFixture`] and calls:
//!
//! ```text
//! landfall_testkit::import_conformance!(SqliteFixture);
//! ```
//!
//! Every case runs on a new database. The [`Dialect`] holds the differences between databases. A
//! database without concurrent writers declares it as in the database suite, and the cases that need them are ignored.

mod fixture;
mod harness;

pub mod columns;
pub mod faults;
pub mod mapping;
pub mod order;

pub use fixture::{Dialect, ImportFixture};
pub use harness::Harness;

use super::capabilities::assert_declared;
use super::database::CASE_LIMIT;

/// Runs one case on a new database. The tests that the macro generates call this.
pub async fn run<F: ImportFixture, C: AsyncFnOnce(Harness<F>)>(case: C) {
    let Some(fixture) = F::create().await else { return };
    let harness = Harness::new(fixture).await;
    tokio::time::timeout(CASE_LIMIT, case(harness)).await.expect("the case exceeded its time limit");
}

/// Asserts that the database lacks exactly the `declared` capabilities. A test that the macro generates calls this.
pub async fn check_declaration<F: ImportFixture>(declared: &[&str]) {
    assert_declared(declared, &[("concurrent_writers", F::DIALECT.concurrent_writers)]);
}

/// Generates one test per case of the import suite for an
/// [`ImportFixture`](crate::conformance::import::ImportFixture).
#[macro_export]
macro_rules! import_conformance {
    ($fixture:ty $(, without $($lacking:ident: $reason:literal),+)?) => {
        $crate::conformance_case! { $($($lacking: $reason),+)? }

        #[::tokio::test(flavor = "multi_thread")]
        async fn declared_capabilities_are_those_of_the_adapter() {
            $crate::conformance::import::check_declaration::<$fixture>(&[$($(stringify!($lacking)),+)?]).await;
        }

        $crate::import_conformance! { @groups $fixture;
            columns:
                debezium_columns_are_the_default_mapping,
                each_payload_type_is_imported_as_its_bytes,
                each_id_type_maps_to_a_stable_message_id,
                custom_columns_and_topic_templates_are_mapped,
                kept_rows_are_marked_as_imported,
                invalid_rows_are_imported_to_be_parked;
            mapping:
                missing_table_is_named_in_the_error,
                missing_column_error_lists_existing_columns,
                unsupported_column_type_is_refused,
                view_is_refused;
            order:
                rows_are_imported_in_order_of_the_column,
                auto_increment_column_is_detected,
                implicit_row_order_is_used_or_reported_as_guessed,
                late_commit_is_imported_late needs concurrent_writers,
                key_order_holds_under_concurrent_writers;
            faults:
                rolled_back_row_is_never_imported,
                stale_epoch_imports_nothing,
                two_importers_move_each_row_once,
                cancelled_import_loses_and_doubles_nothing,
                import_with_killed_connections_loses_and_doubles_nothing,
                failed_enqueue_leaves_the_source_rows;
        }
    };
    (@groups $fixture:ty; $($group:ident: $($case:ident $(needs $first:ident $(and $second:ident)?)?),+;)+) => {
        $($(
            conformance_case! {
                $($first $(and $second)?)?, $case,
                $crate::conformance::import::run::<$fixture, _>($crate::conformance::import::$group::$case)
            }
        )+)+
    };
}
