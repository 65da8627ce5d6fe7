//! What opening a log reads: the last segment of each partition and the indexes of the others, whatever its size.

use std::sync::Arc;

use landfall_core::Message;
use landfall_log::{Log, Options, TopicSettings};

use crate::counting_disk::CountingDisk;
use crate::support::*;

const PARTITIONS: u32 = 3;

fn options() -> Options {
    Options { segment_bytes: 16 * 1024, preallocate_bytes: 4096, partitions: PARTITIONS, ..Options::default() }
}

/// Opens the log and compares the bytes read with the sizes of its files.
async fn assert_opened_from_the_end(folder: &std::path::Path, is_killed: bool) {
    let disk = CountingDisk::default();
    let log = Log::open_on(Arc::new(disk.clone()), folder, options()).unwrap();
    let read = disk.read();
    let length = |path: &std::path::Path| path.metadata().unwrap().len();
    for partition in 0..PARTITIONS {
        let paths = segments(folder, partition);
        let (last, finished) = paths.split_last().unwrap();
        assert!(finished.len() > 20, "the test needs many segments");
        for path in finished {
            assert_eq!(read[path], HEADER as u64, "{}", path.display());
            let index = path.with_extension("index");
            // The index is read once to verify it and once for its ids.
            assert!(read[&index] <= 3 * length(&index), "{}", index.display());
        }
        // Its header, its batches, and again those batches that no later batch marks as synced.
        let limit = HEADER as u64 + if is_killed { 3 } else { 2 } * length(last);
        assert!(read[last] <= limit, "{} of {limit} bytes", read[last]);
    }
    log.close().await.unwrap();
}

#[tokio::test]
async fn opening_reads_last_segments_and_indexes_only() {
    for deduplicate in [true, false] {
        let folder = quick_folder();
        let log = Log::open(folder.path(), options()).unwrap();
        let settings = TopicSettings { deduplicate, ..TopicSettings::default() };
        log.create_topic(&topic(), None, settings).await.unwrap();
        let mut sent = 0;
        while (0..PARTITIONS).any(|partition| segments(folder.path(), partition).len() < 25) {
            let batch: Vec<_> = (0..60).map(|_| Message::new(topic(), vec![b'x'; 200])).collect();
            sent += publish(&log, &batch).await.len();
        }
        // The files as a killed process leaves them, with preallocated space after the last batch.
        let copy = quick_folder();
        copy_tree(folder.path(), copy.path());
        assert_opened_from_the_end(copy.path(), true).await;
        log.close().await.unwrap();
        drop(log);
        assert_opened_from_the_end(folder.path(), false).await;
        let log = Log::open(copy.path(), options()).unwrap();
        assert_eq!(read_all(&log).await.len(), sent);
    }
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
