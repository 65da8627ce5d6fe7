//! What makes a folder a topic, and where a partition begins.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::topic(bytes));
