//! The index of a segment.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::index(bytes));
