//! The outbox: `writer` for senders; `queue` for relays; `view` and `control` for operators. `competing` refuses relays
//! without order. `settle` changes rows.

mod competing;
mod control;
mod queue;
pub(crate) mod settle;
mod view;
mod writer;
