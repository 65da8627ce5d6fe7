//! Reading topics without a group, inside the process and from another one.

pub(crate) mod lanes;
pub(crate) mod read_only;
pub(crate) mod reader;
pub(crate) mod seek;
