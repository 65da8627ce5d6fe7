//! The outbox: `writer` for senders, and `append_once` for those that retry; `queue` for relays that keep order and
//! `competing` for relays that do not; `view` and `control` for operators. `settle` changes rows for all of them.

mod append_once;
mod competing;
mod control;
mod queue;
pub(crate) mod settle;
mod view;
mod writer;
