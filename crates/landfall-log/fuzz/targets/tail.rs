//! The last batches of a partition, kept while recovery writes them again: put in their place, and recovered.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::tail(bytes));
