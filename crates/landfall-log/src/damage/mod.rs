//! Detecting damage, and repairing it on request.

pub(crate) mod chain;
pub(crate) mod inspect;
pub(crate) mod quarantine;
pub(crate) mod repair;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod verify;
