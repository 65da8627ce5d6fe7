//! What Landfall's database adapters on sqlx share. Adapters use it; applications do not need it.
//!
//! * [`Server`] translates a driver's errors and retires connections after a failover.
//! * [`pool_options`] and [`probe`] set up a pool whose connections are checked.
//! * [`within_deadline`] and [`begin_detached`] bound a call in time and make it cancellation-safe.
//! * [`Sql`] and [`statements!`](crate::statements!) hold statements with the validated table prefix filled in.
//! * [`bind_message`], [`push_dead_letter_filter`] and [`push_outbox_filter`] bind the values of core's types.
//! * [`schema_finding`], [`missing_table_finding`] and [`missing_index_finding`] are findings of the doctor.
//! * [`append_once`] enqueues a message once per id, on the table behind [`EnqueuedIds`].
//! * [`retrying_delivery`] and [`push_delivery_filter`] list deliveries that failed.
//! * [`NewDeadLetter`] and [`dead_letter_stats`] are the parts of dead letters that do not depend on a server.

mod append_once;
mod binding;
mod call;
mod dead_letter;
mod delivery;
mod doctor;
mod pool;
mod server;
mod sql;

pub use crate::append_once::{EnqueuedIds, append_once};
pub use crate::binding::{OutboxColumns, bind_message, push_dead_letter_filter, push_outbox_filter};
pub use crate::call::{CALL_DEADLINE, begin_detached, within_deadline};
pub use crate::dead_letter::{
    NewDeadLetter, audit_action, check_edited_payload, consumer_actor, dead_letter_stats, edit_refused, open_letters,
    status_after,
};
pub use crate::delivery::{DeliveryColumns, delivery_counts, push_delivery_filter, retrying_delivery};
pub use crate::doctor::{SLOWER, index_consequence, missing_index_finding, missing_table_finding, schema_finding};
pub use crate::pool::{pool_options, probe};
pub use crate::server::{ErrorCodes, Server};
pub use crate::sql::{Sql, fill_prefix};
