//! The progress file of a group.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::group(bytes));
