//! The write path: from a publish call to synced bytes, each message once.

pub(crate) mod appender;
pub(crate) mod buffer_pool;
pub(crate) mod dedup;
pub(crate) mod open_segment;
pub(crate) mod producers;
pub(crate) mod publish;
pub(crate) mod spin_wait;
pub(crate) mod store;
pub(crate) mod writer;
pub(crate) mod writer_thread;
