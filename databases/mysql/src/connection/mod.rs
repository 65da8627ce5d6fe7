//! Connections: how they are checked, cancelled, retried and translated into errors.

pub(crate) mod error;
mod reset;
pub(crate) mod retry;
pub(crate) mod transaction;

pub use self::reset::reset_if_desynced;
