//! What Landfall's database adapters on sqlx share. Adapters use it; applications do not need it.
//!
//! * [`Server`] translates a driver's errors and retires connections after a failover.
//! * [`pool_options`] and [`probe`] set up a pool whose connections are checked.
//! * [`within_deadline`] and [`begin_detached`] bound a call in time and make it cancellation-safe.
//! * [`Sql`] and [`statements!`](crate::statements!) hold statements with the validated table prefix filled in.
//! * [`bind_message`] and [`push_outbox_filter`] bind the values of core's types.
//! * [`LetterTables`] runs statements that are equal on every server: redrive jobs, groups, alerts, the archive, the
//!   audit trail.
//! * [`schema_finding`], [`missing_table_finding`] and [`missing_index_finding`] are findings of the doctor.
//! * [`append_once`] enqueues a message once per id, on the table behind [`EnqueuedIds`].
//! * [`prepare`] and [`decide`] are the decisions about half messages, on the table behind [`HalfMessageTable`].
//! * [`GroupedCalls`] run calls that arrive together in one statement and one commit.
//! * [`claim_record`] and [`open_record`] decide about idempotency records, on the table behind [`RecordTable`].
//! * [`barrier_refused`] and [`barrier_is_removed`] interpret the barrier in a business database.
//! * [`retrying_delivery`] and [`push_delivery_filter`] list deliveries that failed.
//! * [`NewDeadLetter`] and [`dead_letter_stats`] are the parts of dead letters that do not depend on a server.

pub mod alert;
mod append_once;
pub mod archive;
mod audit;
mod barrier;
mod binding;
mod call;
mod dead_letter;
mod delivery;
mod doctor;
mod grouped_calls;
mod groups;
mod half_message;
mod idempotency;
mod key_rules;
mod letters;
mod pool;
mod portable;
mod ports;
pub mod redrive;
pub mod rehearsal;
mod server;
mod sql;

pub use crate::append_once::{EnqueuedIds, append_batch_once, append_once};
pub use crate::audit::audit_entries;
pub use crate::barrier::{BARRIER_WAIT, barrier_is_removed, barrier_refused};
pub use crate::binding::{OutboxColumns, bind_message, push_outbox_filter};
pub use crate::call::{CALL_DEADLINE, begin_detached, within_deadline};
pub use crate::dead_letter::{
    NewDeadLetter, audit_action, check_edited_payload, consumer_actor, dead_letter_stats, edit_refused, open_letters,
    status_after,
};
pub use crate::delivery::{DeliveryColumns, admissions, delivery_counts, push_delivery_filter, retrying_delivery};
pub use crate::doctor::{SLOWER, index_consequence, missing_index_finding, missing_table_finding, schema_finding};
pub use crate::grouped_calls::{Group, GroupedCalls};
pub use crate::groups::change_group;
pub use crate::half_message::{
    CHECK_BACK, EARLY, HALF_ACKNOWLEDGE, HALF_CONTRADICTION, HALF_PARK, HalfMessageTable, StoredHalf, check_back_json,
    decide, due_check, half_message_detail, half_message_row, prepare, push_half_message_filter, storable_answer,
};
pub use crate::idempotency::{
    RecordTable, audited_id, claim_record, headers_json, no_open_record, open_record, push_record_filter, record_row,
    stored_record,
};
pub use crate::key_rules::{key_rules, remove_key_rule, set_key_rule};
pub use crate::letters::{count_letters, dead_letter_groups, prepare as prepare_letters, set_ignored, top_error_codes};
pub use crate::pool::{pool_options, probe};
pub use crate::portable::{
    Around, Cells, Column, Dialect, LetterTables, Statement, Value, bind_values, cells, letters,
};
pub use crate::server::{ErrorCodes, Server};
pub use crate::sql::{Sql, fill_prefix};
