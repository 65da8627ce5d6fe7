//! When publishers are told, when files are synced, and what a full disk does.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/counting_disk.rs"]
mod counting_disk;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use counting_disk::CountingDisk;
use landfall_core::{Broker, ErrorCode, Key, Message, Outcome, Publisher, StartAt, Timestamp};
use landfall_log::{Acknowledge, Flush, Log, Options};
use support::*;

async fn open(disk: &CountingDisk, folder: &Path, acknowledge: Acknowledge, flush: Flush) -> Log {
    let options = Options { acknowledge, flush, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder, options).unwrap();
    // The topic, its segment and the room in it: what comes after this needs no sync but its own.
    publish(&log, &[message("k", 0)]).await;
    log
}

#[tokio::test]
async fn each_batch_is_synced_before_it_is_acknowledged_unless_somebody_says_otherwise() {
    let (folder, disk) = (quick_folder(), CountingDisk::default());
    let log = open(&disk, folder.path(), Acknowledge::default(), Flush::default()).await;
    for n in 1..5 {
        let before = disk.syncs();
        publish(&log, &[message("k", n)]).await;
        assert_eq!(disk.syncs(), before + 1);
        assert_eq!(read_all(&log).await.len(), n as usize + 1);
    }
}

#[tokio::test]
async fn whoever_reads_from_a_time_is_not_sent_behind_what_is_synced() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish(&log, &[message("k", 0)]).await;
    log.close().await.unwrap();
    let (acknowledge, flush) = (Acknowledge::Written, Flush::Every(Duration::from_secs(60)));
    let log = Log::open(folder.path(), Options { acknowledge, flush, ..one_partition() }).unwrap();
    let mut times = vec![Timestamp::now()];
    for n in 1..9 {
        // Larger than the distance of the places that an index knows.
        let large = Message { payload: vec![7; 50_000].into(), ..message("k", n) };
        publish(&log, &[large]).await;
        landfall_testkit::eventually(SOON, "the clock goes on", async || Timestamp::now() > times[times.len() - 1])
            .await;
        times.push(Timestamp::now());
    }
    for time in times {
        let mut reader = log.read(&topic(), StartAt::Time(time)).await.unwrap();
        assert!(reader.read(10).await.unwrap().is_empty(), "nothing is synced");
    }
    log.close().await.unwrap();
    assert_eq!(read_all(&Log::open(folder.path(), one_partition()).unwrap()).await.len(), 9);
}

#[tokio::test]
async fn what_is_acknowledged_when_written_is_synced_after_so_many_messages() {
    let (folder, disk) = (quick_folder(), CountingDisk::default());
    let started = Instant::now();
    let log = open(&disk, folder.path(), Acknowledge::Written, Flush::EveryMessages(10)).await;
    let before = disk.syncs();
    for n in 1..9 {
        publish(&log, &[message("k", n)]).await;
    }
    let (syncs, seen) = (disk.syncs(), read_all(&log).await);
    // On a machine that took longer than this the rest was synced because of its age.
    if started.elapsed() < Duration::from_millis(100) {
        assert_eq!(syncs, before, "nine messages are too few");
        assert!(seen.is_empty(), "readers see only what was synced");
    }
    publish(&log, &[message("k", 9)]).await;
    landfall_testkit::eventually(SOON, "the tenth is seen", async || read_all(&log).await.len() == 10).await;
    assert!(disk.syncs() > before);
}

#[tokio::test]
async fn a_lone_message_is_synced_when_its_time_has_come() {
    for acknowledge in [Acknowledge::None, Acknowledge::Written, Acknowledge::Synced] {
        for flush in [Flush::EveryMessages(1_000_000), Flush::Every(Duration::from_millis(30))] {
            let (folder, disk) = (quick_folder(), CountingDisk::default());
            let log = open(&disk, folder.path(), acknowledge, flush).await;
            publish(&log, &[message("k", 1)]).await;
            if acknowledge == Acknowledge::Synced {
                assert_eq!(read_all(&log).await.len(), 2, "it was acknowledged, so it was synced");
            }
            let what = format!("{acknowledge:?} {flush:?}");
            landfall_testkit::eventually(SOON, &what, async || read_all(&log).await.len() == 2).await;
        }
    }
}

#[tokio::test]
async fn closing_syncs_what_is_left() {
    for acknowledge in [Acknowledge::None, Acknowledge::Written] {
        let (folder, disk) = (quick_folder(), CountingDisk::default());
        let log = open(&disk, folder.path(), acknowledge, Flush::Every(Duration::from_secs(60))).await;
        let before = disk.syncs();
        publish(&log, &(1..20).map(|n| message("k", n)).collect::<Vec<_>>()).await;
        log.close().await.unwrap();
        assert!(disk.syncs() > before);
        let log = Log::open(folder.path(), one_partition()).unwrap();
        assert_eq!(read_all(&log).await.len(), 20);
    }
}

#[tokio::test]
async fn a_full_disk_refuses_messages_serves_readers_and_recovers_when_there_is_room() {
    fill_and_make_room(CountingDisk::default()).await;
    fill_and_make_room(CountingDisk::working_ahead()).await;
}

async fn fill_and_make_room(disk: CountingDisk) {
    let folder = quick_folder();
    let options = Options { preallocate_bytes: 4096, segment_bytes: 16 * 1024, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let mut stored = Vec::new();
    for round in 0..12 {
        disk.set_full(true);
        // Something may still fit into the room that was made before; then nothing does.
        let mut refused = 0;
        for n in 0..120 {
            let batch = [message("k", n), message("k", n + 1)];
            let outcomes = log.publish(&batch).await;
            assert_eq!(outcomes[0].is_accepted(), outcomes[1].is_accepted());
            match &outcomes[0] {
                Outcome::Accepted(_) => stored.extend(batch),
                Outcome::Refused(refusal) => {
                    let is_topic = stored.is_empty() && refusal.code == ErrorCode::UNAVAILABLE;
                    assert!(refusal.code == ErrorCode::STORAGE_FULL || is_topic, "{refusal:?}");
                    assert!(refusal.retriable);
                    refused += 1;
                }
                Outcome::Unknown(why) => panic!("nobody knows: {why}"),
            }
        }
        assert!(refused > 0, "in round {round} the disk was never full");
        if !stored.is_empty() {
            assert_eq!(read_all(&log).await, stored);
        }
        log.health().unwrap();
        disk.set_full(false);
        let batch: Vec<_> = (0..20).map(|n| message("k", 1000 + n)).collect();
        publish(&log, &batch).await;
        stored.extend(batch);
    }
    assert!(segments(folder.path(), 0).len() > 1, "segments were begun on a full disk, too");
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(read_all(&log).await, stored);
    let mut reader = log.read(&topic(), StartAt::End).await.unwrap();
    assert!(reader.read(1).await.unwrap().is_empty());
}

/// Publishes `batch` with other ids until there is no room; how often there was.
async fn publish_until_full(log: &Log, batch: impl Fn() -> Message) -> usize {
    for accepted in 0..1000 {
        match &log.publish(&[batch()]).await[0] {
            Outcome::Accepted(_) => {}
            Outcome::Refused(refusal) if refusal.code == ErrorCode::STORAGE_FULL => return accepted,
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk was never full");
}

fn sized(bytes: usize) -> Message {
    Message::new(topic(), vec![b'x'; bytes]).with_key(Key::new("k").unwrap())
}

#[tokio::test]
async fn room_is_made_before_it_is_needed_and_that_there_is_none_shows_when_it_is() {
    let (folder, disk) = (quick_folder(), CountingDisk::working_ahead());
    let options = Options { preallocate_bytes: 4096, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let room = || segments(folder.path(), 0)[0].metadata().unwrap().len();
    // About 410 bytes each: the ninth leaves no room for a tenth.
    for _ in 0..9 {
        publish(&log, &[sized(300)]).await;
    }
    landfall_testkit::eventually(SOON, "the next step is there", async || room() == 2 * 4096).await;
    disk.set_full(true);
    // They fit, and that nothing more will is nobody's failure yet.
    let fitted = publish_until_full(&log, || sized(300)).await;
    assert!(fitted >= 9, "{fitted}");
    log.health().unwrap();
    disk.set_full(false);
    publish(&log, &[sized(300)]).await;
    landfall_testkit::eventually(SOON, "there is room again", async || room() == 3 * 4096).await;
    assert_eq!(read_all(&log).await.len(), 10 + fitted);
}

#[tokio::test]
async fn large_batches_get_room_for_many_at_once_and_a_full_disk_takes_none_of_it_away() {
    let (folder, disk) = (quick_folder(), CountingDisk::default());
    let options = Options { preallocate_bytes: 4096, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let room = || segments(folder.path(), 0)[0].metadata().unwrap().len();
    publish(&log, &[sized(3000)]).await;
    assert_eq!(room(), 8 * 4096);
    disk.set_full(true);
    // Small ones want zeros, which need no room where there is some, and large ones want nothing.
    publish(&log, &[sized(10)]).await;
    publish(&log, &[sized(3000)]).await;
    let fitted = publish_until_full(&log, || sized(300)).await;
    assert!(fitted > 50, "{fitted}");
    assert_eq!(room(), 8 * 4096);
    disk.set_full(false);
    disk.set_tight(true);
    publish(&log, &[sized(3000)]).await;
    assert_eq!(room(), 9 * 4096, "one step fits where many do not");
    disk.set_tight(false);
    publish(&log, &[sized(3000)]).await;
    assert_eq!(room(), 17 * 4096);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(read_all(&log).await.len(), 5 + fitted);
}
