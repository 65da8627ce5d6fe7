//! What the doctor finds, and what adapters need for their checks.

pub(crate) mod clock_skew;
pub(crate) mod expected_tables;
pub(crate) mod file_system;
pub(crate) mod finding;
