//! `topic.json`, which makes a folder a topic, and `start.json`, the first offset of a partition.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| landfall_log::fuzzing::topic(bytes));
