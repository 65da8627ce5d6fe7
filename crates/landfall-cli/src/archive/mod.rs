//! Archives of what is removed from the database.
//!
//! | rows | place | file |
//! |---|---|---|
//! | half messages, sent messages | files of JSON lines that grow | [`json_lines`] |
//! | dead letters | compressed objects, each with a manifest | [`letters`], [`manifest`], [`encoding`] |
//!
//! Objects are in a folder or in object storage ([`store`]). A letter leaves the database after its object and its
//! manifest were read back.

mod encoding;
mod json_lines;
mod letters;
mod manifest;
#[cfg(feature = "object-store")]
mod remote;
mod store;

pub(crate) use json_lines::{HalfMessageFolder, JsonLines};
pub(crate) use letters::LetterArchive;
pub(crate) use manifest::Object;
