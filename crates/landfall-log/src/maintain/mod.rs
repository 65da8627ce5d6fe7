//! Retention and compaction, which bound the size of a log.

pub(crate) mod compaction;
pub(crate) mod retention;
pub(crate) mod round;
pub(crate) mod thread;
