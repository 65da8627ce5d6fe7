//! Connections: how a database is opened, transactions, and errors.

pub(crate) mod error;
pub(crate) mod open;
pub(crate) mod transaction;
