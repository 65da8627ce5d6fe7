//! Fills a log quickly with messages that only need to exist.

use landfall::log::Log;
use landfall::{Message, MessageId, Publisher, TopicName};
use tokio::task::JoinSet;

use crate::Result;

/// Large enough that the cost of the sync is negligible.
const BATCH: u64 = 2048;
/// While one batch is written, the others are encoded.
const PUBLISHERS: u64 = 4;

/// Publishes `count` messages without a key, each with its own id. Calls `progress` after each batch with the number of
/// messages stored.
pub(crate) async fn fill(
    log: &Log,
    topic: &TopicName,
    count: u64,
    payload_bytes: usize,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let mut publishers = JoinSet::<Result<u64>>::new();
    let (mut left, mut stored) = (count, 0);
    loop {
        while publishers.len() < PUBLISHERS as usize && left > 0 {
            let (log, topic, size) = (log.clone(), topic.clone(), left.min(BATCH));
            left -= size;
            publishers.spawn(async move {
                let message = || Message::new(topic.clone(), vec![b'x'; payload_bytes]).with_id(MessageId::new());
                let batch: Vec<_> = (0..size).map(|_| message()).collect();
                match log.publish(&batch).await.iter().find(|outcome| !outcome.is_accepted()) {
                    Some(outcome) => Err(format!("the log did not accept a message: {outcome:?}").into()),
                    None => Ok(size),
                }
            });
        }
        let Some(published) = publishers.join_next().await else { return Ok(()) };
        stored += published??;
        progress(stored);
    }
}
