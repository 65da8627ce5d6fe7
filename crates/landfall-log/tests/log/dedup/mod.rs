//! Deduplication: a message whose id is in the topic is not stored again; the publisher gets the position of the first
//! copy, whatever has happened since.

mod ids;
mod killed;
mod scene;
mod topics;
mod unstored;
