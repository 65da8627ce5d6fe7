//! Finding damage, and repairing it on request.

pub(crate) mod aside;
pub(crate) mod inspect;
pub(crate) mod links;
pub(crate) mod repair;
pub(crate) mod salvage;
pub(crate) mod verify;
pub(crate) mod walk;
