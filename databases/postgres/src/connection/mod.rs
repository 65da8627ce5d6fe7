//! Connections: how they are set up, checked, cancelled and translated into errors.

pub(crate) mod error;
mod reset;
mod session;
mod transaction;

pub(crate) use self::reset::detect_lost_client;
pub use self::reset::reset_if_desynced;
