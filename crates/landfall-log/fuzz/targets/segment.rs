//! A segment: read, traversed and recovered.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::segment(bytes));
