//! When publishers are acknowledged, when files are synced, and how the log behaves on a full disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{Broker, ErrorCode, Key, Message, Outcome, Publisher, StartAt, Timestamp, TopicName};
use landfall_log::{Acknowledge, Flush, Log, Options};

use crate::counting_disk::CountingDisk;
use crate::support::*;

async fn open(disk: &CountingDisk, folder: &Path, acknowledge: Acknowledge, flush: Flush) -> Log {
    let options = Options { acknowledge, flush, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder, options).unwrap();
    // Creates the topic and preallocates its segment: later batches need only their own sync.
    publish(&log, &[message("k", 0)]).await;
    log
}

#[tokio::test]
async fn by_default_each_batch_is_synced_before_it_is_acknowledged() {
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
async fn reader_started_at_a_time_sees_no_unsynced_messages() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    publish(&log, &[message("k", 0)]).await;
    log.close().await.unwrap();
    let (acknowledge, flush) = (Acknowledge::Written, Flush::Every(Duration::from_secs(60)));
    let log = Log::open(folder.path(), Options { acknowledge, flush, ..one_partition() }).unwrap();
    let mut times = vec![Timestamp::now()];
    for n in 1..9 {
        // Larger than the distance between two entries of the time index.
        let large = Message { payload: vec![7; 50_000].into(), ..message("k", n) };
        publish(&log, &[large]).await;
        landfall_testkit::eventually(SOON, "the clock advances", async || Timestamp::now() > times[times.len() - 1])
            .await;
        times.push(Timestamp::now());
    }
    for time in times {
        let mut reader = log.read(&topic(), StartAt::Time(time)).await.unwrap();
        assert!(reader.read(10).await.unwrap().is_empty(), "unsynced messages are invisible");
    }
    log.close().await.unwrap();
    assert_eq!(read_all(&Log::open(folder.path(), one_partition()).unwrap()).await.len(), 9);
}

#[tokio::test]
async fn acknowledge_written_syncs_every_n_messages() {
    let (folder, disk) = (quick_folder(), CountingDisk::default());
    let started = Instant::now();
    let log = open(&disk, folder.path(), Acknowledge::Written, Flush::EveryMessages(10)).await;
    let before = disk.syncs();
    for n in 1..9 {
        publish(&log, &[message("k", n)]).await;
    }
    let (syncs, seen) = (disk.syncs(), read_all(&log).await);
    // On a slow machine the messages may have been synced because of their age.
    if started.elapsed() < Duration::from_millis(100) {
        assert_eq!(syncs, before, "nine messages are below the limit");
        assert!(seen.is_empty(), "readers see only synced messages");
    }
    publish(&log, &[message("k", 9)]).await;
    landfall_testkit::eventually(SOON, "the tenth message is visible", async || read_all(&log).await.len() == 10).await;
    assert!(disk.syncs() > before);
}

#[tokio::test]
async fn single_message_is_synced_after_the_flush_interval() {
    for acknowledge in [Acknowledge::None, Acknowledge::Written, Acknowledge::Synced] {
        for flush in [Flush::EveryMessages(1_000_000), Flush::Every(Duration::from_millis(30))] {
            let (folder, disk) = (quick_folder(), CountingDisk::default());
            let log = open(&disk, folder.path(), acknowledge, flush).await;
            publish(&log, &[message("k", 1)]).await;
            if acknowledge == Acknowledge::Synced {
                assert_eq!(read_all(&log).await.len(), 2, "an acknowledged message is synced");
            }
            let what = format!("{acknowledge:?} {flush:?}");
            landfall_testkit::eventually(SOON, &what, async || read_all(&log).await.len() == 2).await;
        }
    }
}

#[tokio::test]
async fn closing_syncs_unsynced_messages() {
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
async fn full_disk_refuses_messages_and_recovers_once_space_is_free() {
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
        // A few batches may still fit into the preallocated space; then all are refused.
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
                Outcome::Unknown(why) => panic!("unknown outcome: {why}"),
            }
        }
        assert!(refused > 0, "in round {round} the disk was never full");
        if !stored.is_empty() {
            assert_eq!(read_all(&log).await, stored);
        }
        log.health().unwrap();
        assert!(Broker::ping(&log).await.is_err(), "a full disk is not ready");
        disk.set_full(false);
        let batch: Vec<_> = (0..20).map(|n| message("k", 1000 + n)).collect();
        publish(&log, &batch).await;
        Broker::ping(&log).await.unwrap();
        stored.extend(batch);
    }
    assert!(segments(folder.path(), 0).len() > 1, "the log also rolled segments on a full disk");
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(read_all(&log).await, stored);
    let mut reader = log.read(&topic(), StartAt::End).await.unwrap();
    assert!(reader.read(1).await.unwrap().is_empty());
}

#[tokio::test]
async fn missing_file_descriptors_refuse_one_publish_and_pass() {
    let (folder, disk) = (quick_folder(), CountingDisk::default());
    let options = Options { preallocate_bytes: 4096, segment_bytes: 16 * 1024, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    // A duplicate of a message in a finished segment: looking up its id opens the index.
    let oldest = sized(4000);
    publish(&log, std::slice::from_ref(&oldest)).await;
    let mut stored = vec![oldest.clone()];
    for round in 0.. {
        disk.exhaust_descriptors_after(round);
        // Enough to finish a segment, and to create a topic.
        let fresh = TopicName::new(format!("fresh-{round}")).unwrap();
        let batch = || [sized(4000), Message::new(fresh.clone(), "1"), oldest.clone()];
        let batches: Vec<_> = (0..6).map(|_| batch()).collect();
        for batch in &batches {
            for outcome in log.publish(batch).await {
                match outcome {
                    Outcome::Accepted(_) => {}
                    Outcome::Refused(refusal) => {
                        let passes = [ErrorCode::UNAVAILABLE, ErrorCode::PREDECESSOR].contains(&refusal.code);
                        assert!(passes && refusal.retriable, "{refusal:?}");
                    }
                    Outcome::Unknown(why) => panic!("round {round}: {why}"),
                }
            }
        }
        log.health().unwrap_or_else(|error| panic!("round {round}: {error}"));
        // The same messages are accepted now, once each.
        let all_failed = disk.exhaust_descriptors_after(-100);
        for batch in batches {
            publish(&log, &batch).await;
            stored.push(batch[0].clone());
        }
        if !all_failed {
            assert!(round > 10, "only {round} opens");
            break;
        }
    }
    let ids = |messages: &[Message]| messages.iter().map(|message| message.id).collect::<BTreeSet<_>>();
    let read = read_all(&log).await;
    assert_eq!((read.len(), ids(&read)), (stored.len(), ids(&stored)));
    log.close().await.unwrap();
}

/// Publishes messages with new ids until the disk is full. Returns the number of accepted messages.
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
async fn failed_preallocation_surfaces_only_when_space_is_needed() {
    let (folder, disk) = (quick_folder(), CountingDisk::working_ahead());
    let options = Options { preallocate_bytes: 4096, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let room = || segments(folder.path(), 0)[0].metadata().unwrap().len();
    // About 410 bytes each: the ninth leaves no room for a tenth.
    for _ in 0..9 {
        publish(&log, &[sized(300)]).await;
    }
    landfall_testkit::eventually(SOON, "the next step is preallocated", async || room() == 2 * 4096).await;
    disk.set_full(true);
    // Messages that fit are accepted; the failed preallocation is not reported yet.
    let fitted = publish_until_full(&log, || sized(300)).await;
    assert!(fitted >= 9, "{fitted}");
    log.health().unwrap();
    disk.set_full(false);
    publish(&log, &[sized(300)]).await;
    landfall_testkit::eventually(SOON, "space is preallocated again", async || room() == 3 * 4096).await;
    assert_eq!(read_all(&log).await.len(), 10 + fitted);
}

#[tokio::test]
async fn full_disk_keeps_space_preallocated_for_large_batches() {
    let (folder, disk) = (quick_folder(), CountingDisk::default());
    let options = Options { preallocate_bytes: 4096, ..one_partition() };
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let room = || segments(folder.path(), 0)[0].metadata().unwrap().len();
    publish(&log, &[sized(3000)]).await;
    assert_eq!(room(), 8 * 4096);
    disk.set_full(true);
    // Small batches write zeros into the space that is already reserved; large ones need no new space.
    publish(&log, &[sized(10)]).await;
    publish(&log, &[sized(3000)]).await;
    let fitted = publish_until_full(&log, || sized(300)).await;
    assert!(fitted > 50, "{fitted}");
    assert_eq!(room(), 8 * 4096);
    disk.set_full(false);
    disk.set_tight(true);
    publish(&log, &[sized(3000)]).await;
    assert_eq!(room(), 9 * 4096, "one step fits where several do not");
    disk.set_tight(false);
    publish(&log, &[sized(3000)]).await;
    assert_eq!(room(), 17 * 4096);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(read_all(&log).await.len(), 5 + fitted);
}
