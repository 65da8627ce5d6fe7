//! Topics: their description, creation, change and deletion.

pub(crate) mod admin;
pub(crate) mod deletion;
pub(crate) mod describe;
pub(crate) mod file;
pub(crate) mod open;
pub(crate) mod settings;
