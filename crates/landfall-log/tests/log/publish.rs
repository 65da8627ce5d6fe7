//! The outcomes of publishing, and the order of stored messages.

use landfall_core::{Broker, ErrorCode, Key, Message, Outcome, Publisher};
use landfall_log::{Log, Options};

use crate::support::*;

fn refusal(outcome: &Outcome) -> (&ErrorCode, bool) {
    match outcome {
        Outcome::Refused(refusal) => (&refusal.code, refusal.retriable),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn oversized_message_holds_back_only_its_own_key() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 4096, ..one_partition() };
    let log = Log::open(folder.path(), options).unwrap();
    let mut large = message("a", 2);
    large.payload = vec![1; 4096].into();
    let batch = [message("a", 1), large, message("a", 3), message("b", 1), Message::new(topic(), "no key")];
    let outcomes = log.publish(&batch).await;
    assert!(outcomes[0].is_accepted());
    assert_eq!(refusal(&outcomes[1]), (&ErrorCode::TOO_LARGE, false));
    assert_eq!(refusal(&outcomes[2]), (&ErrorCode::PREDECESSOR, true));
    assert!(outcomes[3].is_accepted() && outcomes[4].is_accepted());
    assert_eq!(read_all(&log).await, [batch[0].clone(), batch[3].clone(), batch[4].clone()]);

    let alone = log.publish(&batch[1..2]).await;
    assert_eq!(refusal(&alone[0]), (&ErrorCode::TOO_LARGE, false));
    assert!(log.publish(&[message("a", 4)]).await[0].is_accepted(), "a refusal does not stop the log");
}

#[tokio::test]
async fn no_segment_exceeds_its_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 2048, ..one_partition() };
    let log = Log::open(folder.path(), options).unwrap();
    let batch: Vec<_> = (0..100).map(|n| message("k", n)).collect();
    publish(&log, &batch).await;
    assert_eq!(read_all(&log).await, batch);
    for path in segments(folder.path(), 0) {
        assert!(path.metadata().unwrap().len() <= 2048, "{}", path.display());
    }
}

#[tokio::test]
async fn keyed_messages_are_hashed_and_keyless_ones_round_robin() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options::default()).unwrap();
    for n in 0..20 {
        let key = Key::new(format!("key {n}")).unwrap();
        let positions = publish(&log, &[message(key.as_str(), 1), message(key.as_str(), 2)]).await;
        assert!(positions.iter().all(|position| position.partition == key.partition(4)));
        assert_eq!(positions[1].offset, positions[0].offset + 1);
    }
    let mut used = Vec::new();
    for _ in 0..4 {
        let positions = publish(&log, &[Message::new(topic(), "1"), Message::new(topic(), "2")]).await;
        assert_eq!(positions[0].partition, positions[1].partition, "one batch goes to one partition");
        used.push(positions[0].partition);
    }
    used.sort_unstable();
    assert_eq!(used, [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_position_is_unique_and_holds_its_message() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(folder.path(), Options { segment_bytes: 16 * 1024, ..Options::default() }).unwrap();
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..16 {
        let log = log.clone();
        publishers.spawn(async move {
            let mut sent = Vec::new();
            for n in 0..20 {
                let batch: Vec<_> = (0..=n % 5).map(|m| message(&format!("{publisher}-{m}"), n)).collect();
                let positions = publish(&log, &batch).await;
                sent.extend(batch.into_iter().zip(positions));
            }
            sent
        });
    }
    let sent: Vec<_> = publishers.join_all().await.into_iter().flatten().collect();
    let mut reader = log.read(&topic(), landfall_core::StartAt::Beginning).await.unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    let stored: std::collections::HashMap<_, _> =
        stored.into_iter().map(|stored| (stored.position, stored.message.unwrap())).collect();
    assert_eq!(stored.len(), sent.len());
    for (message, position) in &sent {
        assert_eq!(stored.get(position), Some(message));
    }
}
