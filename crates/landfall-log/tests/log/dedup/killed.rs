//! Deduplication when the publishing process is killed.

use std::io::Write;

use landfall_core::{Broker, Message, MessageId, Position};
use landfall_log::Log;
use landfall_testkit::VIOLATION;

use super::scene::*;
use crate::support::*;

const FOLDER: &str = "LANDFALL_LOG_DEDUP_FOLDER";
const SENT: &str = "sent";
const KILLS: usize = 8;

/// Message number `number`. Its id and content depend on the number only, so that the parent can send it again.
fn numbered(number: u64) -> Message {
    let id = MessageId::from_bytes((u128::from(number) << 64 | 0x5eed).to_be_bytes());
    let time = landfall_core::Timestamp::from_millis(1_794_732_000_000);
    Message { time, ..message(&format!("key {}", number % 17), number as i64).with_id(id) }
}

#[tokio::test]
#[ignore = "runs as a child process that another test starts and kills"]
async fn child_publishes_numbers_until_killed() {
    let folder = std::env::var_os(FOLDER).expect("the parent sets the folder");
    let log = Log::open(folder, small_segments()).unwrap();
    let stored = log.topics().await.unwrap().iter().map(|topic| topic.messages).sum::<u64>();
    for first in (stored.saturating_sub(50)..).step_by(7) {
        let batch: Vec<_> = (first..first + 7).map(numbered).collect();
        // Printed before the publish: after a kill all, some or none of these messages may be stored.
        std::io::stdout().lock().write_all(format!("{SENT} {}\n", first + 7).as_bytes()).unwrap();
        publish(&log, &batch).await;
    }
}

#[tokio::test]
async fn messages_resent_after_a_kill_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sent, mut first_positions): (u64, Vec<Position>) = (0, Vec::new());
    for round in 0..KILLS {
        sent = sent.max(run_until_killed(
            "dedup::killed::child_publishes_numbers_until_killed",
            FOLDER,
            folder.path(),
            20 + round * 3,
        ));
        let log = Log::open(folder.path(), small_segments()).unwrap();
        let all: Vec<_> = (0..sent).map(numbered).collect();
        let positions = publish(&log, &all).await;
        assert_eq!(
            positions[..first_positions.len()],
            first_positions,
            "{VIOLATION} round {round}: first positions stay"
        );
        assert_stored_once(&log, &all, &positions).await;
        first_positions = positions;
        log.close().await.unwrap();
    }
}
