//! The tail file, which holds the last batches of a partition while recovery rewrites them: restored, then recovered.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::tail(bytes));
