//! Duplicate ids: in one batch, published concurrently, after a restart, without their indexes.

use std::fs;

use landfall_core::SystemHeader;
use landfall_log::Log;

use super::scene::*;
use crate::support::*;

#[tokio::test]
async fn duplicate_in_the_same_or_a_later_batch_gets_the_first_position() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let (a, b, c) = (message("k", 1), message("k", 2), message("other", 3));
    let batch = [a.clone(), b.clone(), a.clone(), c.clone(), b.clone(), a.clone()];
    let positions = publish(&log, &batch).await;
    let [at_a, at_b, at_c] = [positions[0], positions[1], positions[3]];
    assert_eq!(positions, [at_a, at_b, at_a, at_c, at_b, at_a]);
    let d = message("k", 4);
    let again = publish(&log, &[c.clone(), d.clone(), b.clone(), d.clone()]).await;
    assert_eq!((again[0], again[2], again[3]), (at_c, at_b, again[1]));
    let before = [at_a, at_b, at_c].into_iter().filter(|at| at.partition == again[1].partition).count();
    assert_eq!(again[1].offset, before as u64, "duplicates leave no gap in the offsets");
    assert_stored_once(&log, &[a, b, c, d], &[at_a, at_b, at_c, again[1]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrently_published_duplicates_share_one_position() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent = batch_of(60);
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..8 {
        let (log, sent) = (log.clone(), sent.clone());
        publishers.spawn(async move {
            let mut positions = Vec::new();
            for batch in sent.chunks(1 + publisher) {
                positions.extend(publish(&log, batch).await);
            }
            positions
        });
    }
    let all_positions = publishers.join_all().await;
    assert!(all_positions.iter().all(|positions| *positions == all_positions[0]), "all publishers get equal positions");
    assert_stored_once(&log, &sent, &all_positions[0]).await;
}

#[tokio::test]
async fn ids_are_known_after_segments_roll_and_after_a_restart() {
    let folder = quick_folder();
    let sent = batch_of(200);
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    let positions = publish_one_by_one(&log, &sent).await;
    assert!(finished_segments(folder.path()) > 10);
    for _ in 0..3 {
        assert_eq!(publish(&log, &sent).await, positions);
        assert_eq!(publish_one_by_one(&log, &sent[..20]).await, positions[..20]);
        log.close().await.unwrap();
        log = Log::open(folder.path(), small_segments()).unwrap();
    }
    let more = batch_of(200);
    let more_positions = publish(&log, &more).await;
    assert_eq!(publish(&log, &sent).await, positions);
    let (all, positions) = ([sent, more].concat(), [positions, more_positions].concat());
    assert_stored_once(&log, &all, &positions).await;
}

#[tokio::test]
async fn each_retry_of_a_message_is_deduplicated_separately() {
    let folder = quick_folder();
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    let first = batch_of(60);
    let mut sent = first.clone();
    for attempts in 1..=3 {
        sent.extend(first.iter().cloned().map(|mut message| {
            message.headers.note(SystemHeader::Attempts, attempts);
            message
        }));
    }
    let positions = publish_one_by_one(&log, &sent).await;
    assert!(finished_segments(folder.path()) > 10);
    for removes_indexes in [false, true, false] {
        assert_eq!(publish(&log, &sent).await, positions);
        log.close().await.unwrap();
        if removes_indexes {
            index_files(folder.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        log = Log::open(folder.path(), small_segments()).unwrap();
    }
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn ids_survive_deleted_damaged_or_swapped_indexes() {
    let folder = quick_folder();
    let sent = batch_of(120);
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let positions = publish_one_by_one(&log, &sent).await;
    log.close().await.unwrap();
    let indexes = index_files(folder.path());
    let good: Vec<_> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(indexes.len() > 5);
    for round in 0..4 {
        for (number, path) in indexes.iter().enumerate() {
            match round {
                0 => fs::remove_file(path).unwrap(),
                1 => {
                    let mut bytes = good[number].clone();
                    let at = (number * 37 + 90) % bytes.len();
                    bytes[at] ^= 1;
                    fs::write(path, bytes).unwrap();
                }
                2 => fs::write(path, &good[number][..good[number].len() / 2]).unwrap(),
                _ => fs::write(path, &good[(number + 1) % good.len()]).unwrap(),
            }
        }
        let log = Log::open(folder.path(), small_segments()).unwrap();
        assert_eq!(publish(&log, &sent).await, positions, "round {round}");
        assert_stored_once(&log, &sent, &positions).await;
        log.close().await.unwrap();
        let rebuilt: Vec<_> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(rebuilt, good, "round {round}: an index depends on its segment only");
    }
}
