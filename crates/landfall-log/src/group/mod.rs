//! Consumer groups: membership, assignment and progress.

pub(crate) mod assignment;
pub(crate) mod file;
pub(crate) mod flusher;
pub(crate) mod groups;
pub(crate) mod in_flight;
pub(crate) mod lag;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod partition_progress;
pub(crate) mod progress;
pub(crate) mod subscriber;
