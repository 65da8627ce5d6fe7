//! The outbox: `writer` for senders, and `append_once` for those that retry; `queue` for relays; `view` and `control`
//! for operators. `competing` refuses relays without order. `settle` changes rows.

mod append_once;
mod competing;
mod control;
mod queue;
pub(crate) mod settle;
mod view;
mod writer;
