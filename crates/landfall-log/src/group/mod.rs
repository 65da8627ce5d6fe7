//! Groups: who consumes what, and how far each has come.

pub(crate) mod all;
pub(crate) mod file;
pub(crate) mod flusher;
pub(crate) mod lag;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod place;
pub(crate) mod progress;
pub(crate) mod subscriber;
pub(crate) mod tracker;
