//! What keeps a log from growing for ever.

pub(crate) mod compaction;
pub(crate) mod keeper;
pub(crate) mod retention;
pub(crate) mod round;
