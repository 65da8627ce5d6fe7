//! The outbox: `writer` for senders, and `append_once` for those that retry; `queue` for relays that keep order and
//! `competing` for relays that do not; `view` and `control` for operators.
//!
//! Rows are never changed. A relay reads the rows that have become visible since its last read (`window/`, `batch`),
//! and settling records how far it has come (`settle`). `rotation` empties partitions that are settled. `restore`
//! adapts the tables after a restore into another cluster.

mod append_once;
mod batch;
mod competing;
mod control;
mod queue;
mod restore;
pub(crate) mod rotation;
mod settle;
pub(crate) mod settle_call;
mod view;
pub(crate) mod window;
mod writer;
