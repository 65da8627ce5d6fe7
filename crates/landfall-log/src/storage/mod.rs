//! A partition on disk: records in batches, batches in segments, an index beside each finished segment. Reading and
//! recovery.

pub(crate) mod batch;
pub(crate) mod cursor;
pub(crate) mod index;
pub(crate) mod partition;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod rewrite;
pub(crate) mod segment;
pub(crate) mod start;
pub(crate) mod tail;
