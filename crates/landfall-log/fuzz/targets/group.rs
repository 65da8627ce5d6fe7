//! How far a group has come.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::group(bytes));
