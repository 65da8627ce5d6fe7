//! The registry of idempotent producers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::producers(bytes));
