//! From a publish call to synced bytes, each message once.

pub(crate) mod appender;
pub(crate) mod awake;
pub(crate) mod buffers;
pub(crate) mod open_segment;
pub(crate) mod producers;
pub(crate) mod publish;
pub(crate) mod seen;
pub(crate) mod store;
pub(crate) mod work;
pub(crate) mod writer;
