//! The archive of dead letters, on any server: final letters are read with their history, removed, and put back.

mod read;
mod restore;

pub use read::{old, remove};
pub use restore::restore;
